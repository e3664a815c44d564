-- What waits beside the queues, each kind up to $1. The orders leave the planner only the indexes.
SELECT parked.*, outbox.*, notices.*, tasks.tasks + recoveries.tasks AS tasks, tasks.late + recoveries.late AS tasks_late, held.*, slow.*
FROM (
    SELECT count(*) AS outbox, count(*) FILTER (WHERE leased_until < now() - interval '1 minute') AS outbox_late
    FROM (SELECT leased_until FROM promised_jobs ORDER BY delivery_id LIMIT $1) AS p
) AS outbox
CROSS JOIN (
    SELECT count(*) AS notices, count(*) FILTER (WHERE leased_until < now() - interval '1 minute') AS notices_late
    FROM (SELECT leased_until FROM notices WHERE leased_until IS NOT NULL ORDER BY leased_until LIMIT $1) AS n
) AS notices
CROSS JOIN (
    SELECT count(*) AS tasks, count(*) FILTER (WHERE leased_until < now() - interval '5 minutes') AS late
    FROM (SELECT leased_until FROM cancellations ORDER BY webhook_id LIMIT $1) AS t
) AS tasks
CROSS JOIN (
    SELECT count(*) AS tasks,
        count(*) FILTER (WHERE greatest(leased_until, created_at) < now() - interval '5 minutes') AS late
    FROM (
        SELECT leased_until, created_at FROM recoveries WHERE finished_at IS NULL ORDER BY webhook_id LIMIT $1
    ) AS r
) AS recoveries
CROSS JOIN (
    SELECT count(*) AS held FROM (SELECT FROM held_jobs ORDER BY webhook_id, delivery_id LIMIT $1) AS h
) AS held
CROSS JOIN (
    SELECT count(*) AS slow_webhooks FROM (SELECT FROM held_webhooks ORDER BY webhook_id LIMIT $1) AS s
) AS slow
-- A job is noted before it is published to the queue of dead jobs.
CROSS JOIN (
    SELECT count(*) AS parked
    FROM (
        SELECT delivery_id FROM suspect_jobs
        WHERE dead_reason IS NOT NULL AND marked_at < now() - interval '1 minute' ORDER BY delivery_id LIMIT $1
    ) AS s
    CROSS JOIN LATERAL (SELECT state FROM deliveries WHERE id = s.delivery_id LIMIT 1) AS d
    WHERE d.state IN ('pending', 'retrying')
) AS parked
