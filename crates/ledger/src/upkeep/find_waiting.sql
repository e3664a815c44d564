-- Of these, the ones neither made nor attempted since $2: a job is published right after either.
, found AS MATERIALIZED (
    SELECT d.id, d.attempts, d.due, d.webhook_id, d.is_active
    FROM waiting AS d
    WHERE d.created_at < $2
        AND NOT (d.attempts > 0 AND EXISTS (
            SELECT FROM attempts AS a
            WHERE a.delivery_id = d.id AND a.attempt = d.attempts
                AND a.started_at + a.duration_us * interval '1 microsecond' >= $2
            OFFSET 0
        ))
)

-- All that were found, and the end of the chunk.
SELECT ends.*, found.*
FROM (
    SELECT
        (SELECT id FROM chunk ORDER BY id OFFSET {rows} - 1 LIMIT 1) AS cursor,
        NULL::timestamptz AS earliest_due
) AS ends
LEFT JOIN found ON true
