-- How far the deliveries of attempts have come, and whether these very attempts are their latest ones. An attempt is the
-- caller's own if its start and duration are equal to the microsecond. The server compares times, as it may store them
-- less precisely.
SELECT
    d.id, d.state, d.attempts, d.run_base, d.first_failed_at, d.next_attempt_at,
    d.attempts = made.attempt AND EXISTS (
        SELECT FROM attempts AS a
        WHERE a.delivery_id = d.id AND a.attempt = made.attempt
            AND a.started_at = made.started_at AND a.duration_us = made.duration_us
    )
FROM made
CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = made.delivery_id LIMIT 1) AS d
