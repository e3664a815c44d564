-- The $1 webhooks with most held jobs, and up to $2 jobs of each. Which these are is judged by $3 pages of the table, at random
-- if it has more.
WITH these AS MATERIALIZED (
    SELECT webhook_id, count(*) AS seen
    FROM held_jobs TABLESAMPLE SYSTEM (
        least(100, 100 * $3 * current_setting('block_size')::float8 / greatest(1, pg_relation_size('held_jobs')))
    )
    GROUP BY webhook_id ORDER BY count(*) DESC, webhook_id LIMIT $1
)
SELECT these.webhook_id, w.tenant_id, j.jobs, j.paused, j.oldest, n.release_at
FROM these
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, count(*) FILTER (WHERE reason = 'paused') AS paused, min(held_at) AS oldest
    FROM (
        SELECT reason, held_at FROM held_jobs
        WHERE webhook_id = these.webhook_id ORDER BY webhook_id, delivery_id LIMIT $2
    ) AS some_jobs
) AS j
LEFT JOIN LATERAL (SELECT tenant_id FROM webhooks WHERE id = these.webhook_id) AS w ON true
LEFT JOIN LATERAL (SELECT release_at FROM held_webhooks WHERE webhook_id = these.webhook_id) AS n ON true
ORDER BY these.seen DESC, these.webhook_id
