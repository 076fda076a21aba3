-- Has the statements of this transaction planned once for a session, for good: by indexes and nested loops alone, which costs the
-- same for every row whatever the size of the tables was when the plan was made. Only for statements that join by key.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true)
