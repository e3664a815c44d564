-- Overdue deliveries among the $1 that are due first and the latest $1 of all: no index names those without a due time.
-- Not those whose jobs wait elsewhere than on the queues of due jobs (`waiting.sql` and `find_overdue.sql` do the
-- same).
WITH due AS MATERIALIZED (
    SELECT * FROM (
        SELECT delivery_id AS id, webhook_id, next_attempt_at AS due FROM unsuccessful_deliveries
        WHERE state IN ('pending', 'retrying')
        ORDER BY next_attempt_at, delivery_id
        LIMIT $1
    ) AS u
    WHERE due < now()
    UNION ALL
    SELECT id, webhook_id, created_at
    FROM (
        SELECT id, webhook_id, state, next_attempt_at, created_at FROM deliveries ORDER BY id DESC LIMIT $1
    ) AS d
    WHERE state = 'pending' AND next_attempt_at IS NULL AND created_at < now()
)
SELECT count(*) AS overdue, min(due) AS oldest_due
FROM due
CROSS JOIN LATERAL (SELECT is_active FROM webhooks WHERE id = due.webhook_id AND deleted_at IS NULL LIMIT 1) AS w
WHERE w.is_active
    AND NOT EXISTS (SELECT FROM promised_jobs AS p WHERE p.delivery_id = due.id OFFSET 0)
    AND NOT EXISTS (
        SELECT FROM held_jobs AS h WHERE h.webhook_id = due.webhook_id AND h.delivery_id = due.id OFFSET 0
    )
    AND NOT EXISTS (
        SELECT FROM suspect_jobs AS s WHERE s.delivery_id = due.id AND s.dead_reason IS NOT NULL OFFSET 0
    )
