-- Plans the statements of this transaction for the arrays they are given. A plan made for any length is made for a short one,
-- and is quadratic for a long one.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true)
