-- Makes the server notice within half a minute that this session's machine is gone, which frees the locks it holds.
SELECT set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false);
