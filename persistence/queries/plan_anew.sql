-- Has the statements of this transaction planned for the arrays they are given and the tables as they are now. A plan that is
-- kept was made for short arrays, and while the tables were small: it is quadratic for long ones and reads whole tables.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true)
