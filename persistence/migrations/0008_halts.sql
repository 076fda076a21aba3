-- Shards whose log has a gap: nothing after it can be persisted until somebody mends that.

CREATE TABLE halts (
    shard      integer PRIMARY KEY,
    epoch      bigint NOT NULL,
    seq        bigint NOT NULL,
    reason     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE halts IS 'Where the log of a shard was last found to have a gap. It counts while the mark is still there, in the same epoch.';
