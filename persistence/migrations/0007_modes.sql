-- What the change between Redis and Postgres needs: epochs that are never given twice, who asked for it, who agreed.

-- Epochs were counted by hand so far, and the sequence must not give out again what was used.
SELECT setval('epochs', max(epoch)) FROM control HAVING max(epoch) > 0;

ALTER TABLE control ADD COLUMN pinned boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN control.pinned IS 'An operator has chosen the mode: only an operator changes it back.';
ALTER TABLE control ADD COLUMN closing_at timestamptz;
COMMENT ON COLUMN control.closing_at IS 'When somebody began to close the epoch in Redis and drain its log; votes wait for that.';

CREATE TABLE transitions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard       integer NOT NULL,
    from_mode   text NOT NULL,
    from_epoch  bigint NOT NULL,
    mode        text NOT NULL,
    epoch       bigint NOT NULL,
    reason      text NOT NULL,
    actor       text NOT NULL,
    details     jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE transitions IS 'The audit of modes: every change of a shard, who made it and why. Rows are never changed.';
CREATE INDEX transitions_by_shard ON transitions (shard, id DESC);

CREATE TABLE voters (
    id            uuid PRIMARY KEY,
    kind          text NOT NULL,
    name          text NOT NULL,
    seen_at       timestamptz NOT NULL,
    reaches_redis boolean NOT NULL,
    shards        integer[] NOT NULL,
    epochs        bigint[] NOT NULL,
    reasons       text[] NOT NULL,
    CONSTRAINT voters_kind_known CHECK (kind IN ('front end', 'keeper'))
);
COMMENT ON TABLE voters IS 'Processes that are alive, whether they reach Redis, and the shards (with their epochs) they want taken from it.';
