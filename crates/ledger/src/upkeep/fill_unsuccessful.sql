-- Adds the unsuccessful ones among the next deliveries after $1. Returns the last one that it read. The lock waits for a
-- change to a delivery that is under way, so that the row shows the newest state.
WITH chunk AS MATERIALIZED (SELECT id FROM deliveries WHERE id > $1 ORDER BY id LIMIT 10000)
, filled AS (
    INSERT INTO unsuccessful_deliveries (delivery_id, webhook_id, state, next_attempt_at)
    SELECT id, webhook_id, state, next_attempt_at
    FROM deliveries
    WHERE id > $1 AND id <= (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AND state NOT IN ('pending', 'succeeded')
    ORDER BY id FOR SHARE
    ON CONFLICT DO NOTHING
)
SELECT (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS last
