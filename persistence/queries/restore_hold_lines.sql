-- Inserts lines of holds that should be there. The rows of the result are those that are now; a seat that another hold has
-- stays with that one.
-- $1 hold_ids uuid[]: the hold of each line
-- $2 lines smallint[]: the number of the line within its hold
-- $3 organization_ids uuid[]: its organisation
-- $4 event_ids uuid[]: its event
-- $5 user_ids uuid[]: its user
-- $6 zones int[]: its zone
-- $7 ordinals int[]: its seat, null for general admission
-- $8 quantities int[]: its units
-- $9 created_at timestamptz[]: when it was made
-- $10 ttls int[]: its first time to live, ms
-- $11 carts text[]: its cart token
-- $12 fingerprints text[]: the digest of its request
-- $13 addresses text[]: the digest of its client's address
-- $14 statuses text[]: its status
-- $15 held_until timestamptz[]: when it ends
-- $16 checkouts text[]: its checkout
-- $17 extensions text[]: the key of its last extension
-- $18 reasons text[]: why it ended
-- $19 ended_at timestamptz[]: when it ended
-- $20 epochs bigint[]: the epoch of its last log entry
-- $21 seqs bigint[]: the number of its last log entry
-- $22 updated_at timestamptz[]: the time of its last log entry
-- $23 declined boolean[]: whether its companion seats were declined
-- $24 sources text[]: what it was made with
INSERT INTO seat_holds (hold_id, line, organization_id, event_id, user_id, zone, ordinal, quantity, created_at, ttl_ms,
    cart_token, fingerprint, address, status, held_until, checkout_id, extension_key, release_reason, ended_at, epoch, seq,
    updated_at, companions_declined, source)
SELECT *
FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::uuid[], $5::uuid[], $6::int[], $7::int[], $8::int[],
    $9::timestamptz[], $10::int[], $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::text[],
    $17::text[], $18::text[], $19::timestamptz[], $20::bigint[], $21::bigint[], $22::timestamptz[], $23::boolean[],
    $24::text[])
ON CONFLICT DO NOTHING
RETURNING hold_id, line
