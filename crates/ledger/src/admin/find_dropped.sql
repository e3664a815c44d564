-- The next $3 unsuccessful deliveries of any webhook, in the order of their ids: those with ids after $1 and before $2. Of
-- those that a recovery may send again it returns the tenant ($4, if given), the attempts and how the last one ended. Left
-- out are deliveries of deleted webhooks, of webhooks whose deliveries are being cancelled, and those with $5 attempts or
-- more. Each row is found by its key: `OFFSET 0` leaves the planner no other way.
WITH looked_at AS MATERIALIZED (
    SELECT delivery_id, webhook_id, state FROM unsuccessful_deliveries
    WHERE delivery_id > $1 AND delivery_id < $2
    ORDER BY delivery_id
    LIMIT $3
)
SELECT l.delivery_id AS id, l.webhook_id, found.tenant_id, found.attempts, found.outcome
FROM looked_at AS l
LEFT JOIN LATERAL (
    SELECT w.tenant_id, d.attempts, a.outcome
    FROM (SELECT tenant_id, deleted_at FROM webhooks WHERE id = l.webhook_id OFFSET 0) AS w
    CROSS JOIN LATERAL (
        SELECT attempts FROM deliveries WHERE id = l.delivery_id AND id > $1 AND id < $2 OFFSET 0
    ) AS d
    LEFT JOIN LATERAL (
        SELECT outcome FROM attempts
        WHERE delivery_id = l.delivery_id AND attempt = d.attempts AND delivery_id > $1 AND delivery_id < $2 OFFSET 0
    ) AS a ON true
    WHERE l.state = 'dropped' AND w.deleted_at IS NULL AND ($4 IS NULL OR w.tenant_id = $4) AND d.attempts < $5
        AND NOT EXISTS (SELECT FROM webhook_tasks WHERE webhook_id = l.webhook_id OFFSET 0)
    OFFSET 0
) AS found ON true
ORDER BY l.delivery_id
