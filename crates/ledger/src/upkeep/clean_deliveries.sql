-- Deletes the next deliveries after $1 that were made before $2 and are finished, with their attempts.
--
-- A delivery that is held for a slow receiver ends as well, if it is held since before $2, and its webhook is active since
-- then. Its job is deleted first: if it is published at this moment, the delivery stays.
WITH chunk AS MATERIALIZED (
    SELECT id, webhook_id, state, created_at FROM deliveries_{day} WHERE id > $1 ORDER BY id LIMIT {rows}
)
, ended AS (
    DELETE FROM held_jobs AS h USING chunk, webhooks AS w
    WHERE chunk.created_at < $2 AND chunk.state IN ('pending', 'retrying') AND h.webhook_id = chunk.webhook_id AND h.delivery_id = chunk.id
        AND h.reason = 'slow' AND h.held_at < $2 AND w.id = h.webhook_id AND w.is_active AND w.updated_at < $2
    RETURNING h.delivery_id
)
, gone AS (
    DELETE FROM deliveries_{day} AS d
    WHERE d.id IN (SELECT id FROM chunk) AND d.created_at < $2
        AND (d.state NOT IN ('pending', 'retrying') OR d.id IN (SELECT delivery_id FROM ended))
    RETURNING d.id
)
, logged AS (DELETE FROM attempts_{day} AS a USING gone WHERE a.delivery_id = gone.id)
SELECT
    (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS cursor,
    (SELECT count(*) FROM chunk) AS looked,
    (SELECT count(*) FROM gone) AS gone,
    (SELECT count(*) FROM ended) AS ended
