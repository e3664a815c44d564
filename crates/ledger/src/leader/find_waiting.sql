-- Of these, the ones neither made nor attempted since $3, as a job is published after either. Two kinds have none, and are left to
-- lost-job detection: an ingest may die before it publishes, and the message of an attempt under way may be lost with the disk.
-- Jobs of the outbox are among them: a relay may have published one before the disk was lost, and delete its entry later.
-- And the chunk's end.
SELECT ends.*, found.*
FROM (
    SELECT
        NULL::timestamptz AS first_due, NULL::uuid AS first_id, last.due AS last_due, last.id AS last_id,
        NULL::timestamptz AS oldest_due, NULL::uuid AS oldest_id
    FROM (SELECT 1) AS one LEFT JOIN (SELECT due, id FROM chunk WHERE number = {rows}) AS last ON true
) AS ends
LEFT JOIN (
    SELECT w.id, d.attempts, w.due, w.webhook_id, w.is_active
    FROM waiting AS w
    CROSS JOIN LATERAL (SELECT attempts, created_at FROM deliveries WHERE id = w.id LIMIT 1) AS d
    WHERE d.created_at < $3
        AND NOT (d.attempts > 0 AND EXISTS (
            SELECT FROM attempts AS a
            WHERE a.delivery_id = w.id AND a.attempt = d.attempts
                AND a.started_at + a.duration_us * interval '1 microsecond' >= $3
            OFFSET 0
        ))
) AS found ON true
