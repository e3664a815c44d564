-- Reads the next held jobs after ($1, $2). Deletes those that were held for too long, and returns their deliveries:
--
-- - of a paused webhook those held by a pause for $4 seconds, a week after a notice at the earliest. The notice is added here, once
--   for each pause and each change during it: also for deliveries that are held later.
-- - of an active webhook those held as its receiver is slow since before $3, if the webhook is active since then.
--
-- The share lock makes an activation wait; the jobs of a webhook that is being changed stay. A job that is published at
-- this moment stays, too.
WITH chunk AS MATERIALIZED (
    SELECT webhook_id, delivery_id, reason, held_at FROM held_jobs
    WHERE (webhook_id, delivery_id) > ($1, $2) ORDER BY webhook_id, delivery_id LIMIT {rows}
)
, oldest AS MATERIALIZED (
    SELECT webhook_id, min(held_at) AS held_at FROM chunk GROUP BY webhook_id
)
, webhook AS MATERIALIZED (
    SELECT id, tenant_id, name, is_active, updated_at FROM webhooks
    WHERE id IN (
            SELECT webhook_id FROM oldest
            WHERE held_at < greatest($3, now() - $4 * interval '1 second' + interval '7 days')
        )
        AND deleted_at IS NULL
    ORDER BY id FOR SHARE SKIP LOCKED
)
, pause AS MATERIALIZED (
    SELECT
        w.id, w.tenant_id, w.name, oldest.held_at,
        (
            SELECT n.created_at FROM notices AS n
            WHERE n.webhook_id = ANY (ARRAY[w.id]) AND n.notice_type = 'webhook.expiring' AND n.created_at >= w.updated_at
            ORDER BY n.webhook_id, n.id LIMIT 1
        ) AS noticed_at
    FROM webhook AS w
    JOIN oldest ON oldest.webhook_id = w.id
    WHERE NOT w.is_active AND oldest.held_at < now() - $4 * interval '1 second' + interval '7 days'
)
, noticed AS (
    INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
    SELECT id, tenant_id, name, 'webhook.expiring', json_build_object(
        'held_since', rfc3339(held_at),
        'cancelled_after', rfc3339(greatest(held_at + $4 * interval '1 second', now() + interval '7 days'))
    )
    FROM pause WHERE noticed_at IS NULL
)
, over AS MATERIALIZED (
    SELECT c.webhook_id, c.delivery_id
    FROM chunk AS c
    JOIN webhook AS w ON w.id = c.webhook_id
    LEFT JOIN pause AS p ON p.id = c.webhook_id
    WHERE CASE WHEN w.is_active THEN c.reason = 'slow' AND c.held_at < $3 AND w.updated_at < $3
        ELSE CASE c.reason WHEN 'slow' THEN greatest(c.held_at, w.updated_at) ELSE c.held_at END
                < now() - $4 * interval '1 second'
            AND p.noticed_at < now() - interval '7 days' END
)
, ended AS (
    DELETE FROM held_jobs AS h USING over
    WHERE h.webhook_id = over.webhook_id AND h.delivery_id = over.delivery_id
    RETURNING h.delivery_id
)
SELECT
    last.webhook_id, last.delivery_id,
    (SELECT count(*) FROM chunk) AS looked,
    ARRAY(SELECT delivery_id FROM ended) AS ended
FROM (SELECT 1) AS one
LEFT JOIN (SELECT webhook_id, delivery_id FROM chunk ORDER BY webhook_id DESC, delivery_id DESC LIMIT 1) AS last ON true
