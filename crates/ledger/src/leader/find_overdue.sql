-- Of these, the jobs that are due, and neither in the outbox, parked nor of a paused webhook.
, found AS MATERIALIZED (
    SELECT * FROM waiting AS w
    WHERE w.is_active AND w.due < now()
        AND NOT EXISTS (SELECT FROM promised_jobs AS p WHERE p.delivery_id = w.id OFFSET 0)
        AND NOT EXISTS (
            SELECT FROM suspect_jobs AS s WHERE s.delivery_id = w.id AND s.dead_reason IS NOT NULL OFFSET 0
        )
)

-- Up to $4 that were due before $3 and not enqueued again lately. None if $3 is null. The back-off doubles from 1 hour
-- to 32. With the chunk's ends and its most overdue delivery.
SELECT ends.*, lost.*
FROM (
    SELECT
        first.due AS first_due, first.id AS first_id, last.due AS last_due, last.id AS last_id,
        oldest.due AS oldest_due, oldest.id AS oldest_id
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT due, id FROM chunk WHERE number = 1) AS first ON true
    LEFT JOIN (SELECT due, id FROM chunk WHERE number = {rows}) AS last ON true
    LEFT JOIN (SELECT due, id FROM found ORDER BY due, id LIMIT 1) AS oldest ON true
) AS ends
LEFT JOIN (
    SELECT f.id, d.attempts, f.due, f.webhook_id, f.is_active
    FROM found AS f
    CROSS JOIN LATERAL (SELECT attempts FROM deliveries WHERE id = f.id LIMIT 1) AS d
    WHERE f.due < $3
        AND NOT EXISTS (
            SELECT FROM requeued_jobs AS r
            WHERE r.delivery_id = f.id AND r.attempt = d.attempts + 1
                AND r.requeued_at + interval '1 hour' * (1 << least(r.requeue_count - 1, 5)) > now()
            OFFSET 0
        )
    LIMIT $4
) AS lost ON true
