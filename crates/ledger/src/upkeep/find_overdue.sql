-- Of these, the jobs that were due before $2, and are not parked.
, found AS MATERIALIZED (
    SELECT d.id, d.attempts, d.due, d.webhook_id, d.is_active
    FROM waiting AS d
    WHERE d.is_active AND d.due < $2
        AND NOT EXISTS (
            SELECT FROM suspect_jobs AS s WHERE s.delivery_id = d.id AND s.parked_as IS NOT NULL OFFSET 0
        )
)

-- Those that were due before $3 (with attempts: before $5) and not enqueued again lately, seen from $4. None if $3 is
-- null. The back-off doubles from 1 hour to 32.
SELECT ends.*, lost.*
FROM (
    SELECT
        (SELECT id FROM chunk ORDER BY id OFFSET {rows} - 1 LIMIT 1) AS cursor,
        (SELECT min(due) FROM found) AS earliest_due
) AS ends
LEFT JOIN (
    SELECT * FROM found
    WHERE found.due < CASE WHEN found.attempts = 0 THEN $3 ELSE $5 END AND NOT EXISTS (
        SELECT FROM requeued_jobs AS r
        WHERE r.delivery_id = found.id AND r.attempt = found.attempts + 1
            AND r.requeued_at + interval '1 hour' * (1 << least(r.times - 1, 5)) > $4
        OFFSET 0
    )
) AS lost ON true
