-- Finds each job's delivery `d`, webhook `w` and event `e` by their keys, one after another. A LIMIT keeps the planner
-- from another order, such as all deliveries of a webhook first when it believes that there are few. `jobs` is one row
-- of arrays, and sorted: their ends bound the days, so that other days' partitions are not even opened. `week` is of
-- constants: the plan has its partitions and no others, as each partition of a plan is locked at each execution.
FROM week
CROSS JOIN jobs
CROSS JOIN LATERAL unnest(jobs.delivery_id, jobs.occurred_at) WITH ORDINALITY AS job(delivery_id, occurred_at, number)
CROSS JOIN LATERAL (
    SELECT * FROM deliveries
    WHERE deliveries.id = job.delivery_id
        AND deliveries.id >= week.first_id AND deliveries.id < week.end_id
        AND deliveries.id BETWEEN jobs.delivery_id[1] AND jobs.delivery_id[cardinality(jobs.delivery_id)]
    LIMIT 1
) AS d
CROSS JOIN LATERAL (SELECT * FROM webhooks WHERE webhooks.id = d.webhook_id LIMIT 1) AS w
CROSS JOIN LATERAL (
    SELECT * FROM events
    WHERE events.occurred_at = job.occurred_at AND events.id = d.event_id
        AND events.tenant_id = w.tenant_id AND events.event_type = d.event_type
        AND events.occurred_at >= week.first_at AND events.occurred_at < week.end_at
        AND events.occurred_at BETWEEN jobs.occurred_at[1] AND jobs.occurred_at[cardinality(jobs.occurred_at)]
    LIMIT 1
) AS e
