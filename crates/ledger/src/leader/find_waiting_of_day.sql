-- Reads the next rows of the index of waiting deliveries, by their ids, from $1 to $2. Returns those that wait, and the
-- last one where more may follow.
WITH chunk AS MATERIALIZED (
    SELECT delivery_id, webhook_id, state IN ('pending', 'retrying') AS waits FROM unsuccessful_deliveries
    WHERE delivery_id > $1 AND delivery_id < $2 ORDER BY delivery_id LIMIT {rows}
)
, waiting AS MATERIALIZED (
    SELECT delivery_id, webhook_id FROM chunk WHERE waits ORDER BY webhook_id, delivery_id
)
SELECT
    (SELECT delivery_id FROM chunk ORDER BY delivery_id OFFSET {rows} - 1) AS next,
    (SELECT count(*) FROM chunk) AS looked,
    ARRAY(SELECT delivery_id FROM waiting) AS deliveries,
    ARRAY(SELECT webhook_id FROM waiting) AS webhooks
