-- How far the deliveries of attempts have come, and whether these very attempts are their latest ones. An attempt is the
-- caller's own if its start and duration are equal to the microsecond. The server compares times, as it may store them
-- less precisely. The statement is planned with its values: `= ANY` leaves the partitions of these days in the plan.
SELECT
    d.id, d.state, d.attempts, d.run_base, d.first_failed_at, d.next_attempt_at,
    d.attempts = one.attempt AND EXISTS (
        SELECT FROM attempts AS a
        WHERE a.delivery_id = one.delivery_id AND a.delivery_id = ANY (made.delivery_id) AND a.attempt = one.attempt
            AND a.started_at = one.started_at AND a.duration_us = one.duration_us
    )
FROM made
CROSS JOIN LATERAL unnest(made.delivery_id, made.attempt, made.started_at, made.duration_us)
    AS one(delivery_id, attempt, started_at, duration_us)
CROSS JOIN LATERAL (
    SELECT * FROM deliveries WHERE id = one.delivery_id AND id = ANY (made.delivery_id) LIMIT 1
) AS d
