-- The deliveries whose events are there, found as `from_jobs.sql` finds them. The statement is planned with its values:
-- `= ANY` leaves the partitions of these very days in the plan, however far apart they are.
SELECT d.id
FROM jobs
CROSS JOIN LATERAL unnest(jobs.delivery_id, jobs.occurred_at) AS job(delivery_id, occurred_at)
CROSS JOIN LATERAL (
    SELECT * FROM deliveries
    WHERE deliveries.id = job.delivery_id AND deliveries.id = ANY (jobs.delivery_id)
    LIMIT 1
) AS d
CROSS JOIN LATERAL (SELECT * FROM webhooks WHERE webhooks.id = d.webhook_id LIMIT 1) AS w
CROSS JOIN LATERAL (
    SELECT FROM events
    WHERE events.occurred_at = job.occurred_at AND events.id = d.event_id
        AND events.tenant_id = w.tenant_id AND events.event_type = d.event_type
        AND events.occurred_at = ANY (jobs.occurred_at)
    LIMIT 1
) AS e
