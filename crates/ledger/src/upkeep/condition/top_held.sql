-- Webhooks with held jobs, $1 at the most, and up to $2 jobs of each. Their ids are found one after the other along the key.
WITH RECURSIVE held AS (
    (SELECT webhook_id FROM held_jobs ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (SELECT h.webhook_id FROM held_jobs AS h WHERE h.webhook_id > held.webhook_id ORDER BY h.webhook_id LIMIT 1)
    FROM held WHERE held.webhook_id IS NOT NULL
)
, these AS MATERIALIZED (
    SELECT webhook_id FROM held WHERE webhook_id IS NOT NULL LIMIT $1
)
SELECT these.webhook_id, w.tenant_id, j.jobs, j.paused, j.oldest, n.wake_at
FROM these
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, count(*) FILTER (WHERE reason = 'paused') AS paused, min(held_at) AS oldest
    FROM (
        SELECT reason, held_at FROM held_jobs
        WHERE webhook_id = these.webhook_id ORDER BY webhook_id, delivery_id LIMIT $2
    ) AS some_jobs
) AS j
LEFT JOIN LATERAL (SELECT tenant_id FROM webhooks WHERE id = these.webhook_id) AS w ON true
LEFT JOIN LATERAL (SELECT wake_at FROM held_webhooks WHERE webhook_id = these.webhook_id) AS n ON true
