-- Reads the next deliveries of a day after $1, and returns those that wait for a webhook that is not deleted, as
-- `waiting.sql` does: the first {most} of them. Where more may follow, `next` is the last id that needs no second look.
WITH chunk AS MATERIALIZED (
    SELECT id, webhook_id, state FROM deliveries_{day} WHERE id > $1 ORDER BY id LIMIT {rows}
)
, waiting AS MATERIALIZED (
    SELECT c.id FROM chunk AS c
    CROSS JOIN LATERAL (SELECT FROM webhooks WHERE id = c.webhook_id AND deleted_at IS NULL LIMIT 1) AS w
    WHERE c.state IN ('pending', 'retrying')
    ORDER BY c.id LIMIT {most}
)
, kept AS MATERIALIZED (
    SELECT d.id FROM deliveries_{day} AS d
    WHERE d.id = ANY (ARRAY(SELECT id FROM waiting)) AND d.state IN ('pending', 'retrying') ORDER BY d.id {lock}
)
, last AS MATERIALIZED (
    SELECT CASE
        WHEN (SELECT count(*) FROM waiting) = {most} THEN (SELECT id FROM waiting ORDER BY id DESC LIMIT 1)
        WHEN (SELECT count(*) FROM chunk) = {rows} THEN (SELECT id FROM chunk ORDER BY id DESC LIMIT 1)
    END AS next
)
SELECT
    next,
    (SELECT count(*) FROM chunk WHERE next IS NULL OR id <= next) AS looked,
    ARRAY(SELECT id FROM kept) AS kept
FROM last
