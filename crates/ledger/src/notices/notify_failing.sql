-- Adds a notice for each webhook that has failed for $1 seconds with $2 attempts, and again for each of $3 (seconds)
-- that has passed since. `failing_notices` of its health counts them; times that were missed count as notified. The rows are
-- locked in the order of ids; one that a dispatcher has locked just now comes next time.
WITH due AS MATERIALIZED (
    SELECT h.webhook_id, w.tenant_id, w.name, 1 + again.passed AS notices
    FROM webhook_health AS h
    JOIN webhooks AS w ON w.id = h.webhook_id AND w.deleted_at IS NULL AND w.is_active
    CROSS JOIN LATERAL (
        SELECT count(*) AS passed FROM unnest($3) AS after WHERE h.failing_since <= now() - after * interval '1 second'
    ) AS again
    WHERE h.failing_since <= now() - $1 * interval '1 second'
        AND h.failure_count >= $2 AND h.failing_notices < 1 + again.passed
    ORDER BY h.webhook_id
    LIMIT 500
    FOR NO KEY UPDATE OF h SKIP LOCKED
)
, notified AS (
    UPDATE webhook_health AS h SET failing_notices = due.notices FROM due WHERE h.webhook_id = due.webhook_id
    RETURNING h.webhook_id, due.tenant_id, due.name, h.failing_since, h.failure_count, h.last_failure, h.dropped
)
INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
SELECT webhook_id, tenant_id, name, 'webhook.failing', json_build_object(
    'failing_since', rfc3339(failing_since),
    'failed_attempts', failure_count,
    'dropped', dropped,
    'last_failure', last_failure
)
FROM notified
