-- Attempts that began since $1, of the latest $3 deliveries with ids from $2 on, by webhook. An attempt's time has no index, so
-- retries of older deliveries are not seen.
WITH latest AS MATERIALIZED (
    SELECT id, webhook_id FROM deliveries WHERE id >= $2 ORDER BY id DESC LIMIT $3
)
, made AS MATERIALIZED (
    SELECT latest.webhook_id, a.outcome, a.duration_us
    FROM latest
    CROSS JOIN LATERAL (
        SELECT outcome, duration_us FROM attempts
        WHERE delivery_id = latest.id AND delivery_id >= $2 AND started_at >= $1
        -- A look-up for each delivery: as a join, it may read whole days.
        OFFSET 0
    ) AS a
)
SELECT
    m.webhook_id, w.tenant_id, m.attempts, m.failed, m.failure, m.seconds, m.slow_attempts, m.slow_seconds
FROM (
    SELECT
        webhook_id, count(*) AS attempts, count(*) FILTER (WHERE outcome <> 'success') AS failed,
        mode() WITHIN GROUP (ORDER BY outcome) FILTER (WHERE outcome <> 'success') AS failure,
        sum(duration_us)::float8 / 1e6 AS seconds, count(*) FILTER (WHERE duration_us >= 1000000) AS slow_attempts,
        coalesce(sum(duration_us) FILTER (WHERE duration_us >= 1000000), 0)::float8 / 1e6 AS slow_seconds
    FROM made GROUP BY webhook_id
) AS m
LEFT JOIN LATERAL (SELECT tenant_id FROM webhooks WHERE id = m.webhook_id) AS w ON true
