-- The deliveries of events that wait for their first attempt, with the number of their event. An event's deliveries have
-- one of few ids: of the webhooks that its tenant has or had (see `store_events.sql`). `week` bounds the plan's partitions,
-- as in `from_jobs.sql`.
SELECT number, found.id
FROM week
CROSS JOIN event
CROSS JOIN LATERAL (SELECT id AS webhook FROM webhooks WHERE tenant_id = event.tenant OFFSET 0) AS any_webhook
CROSS JOIN LATERAL (
    SELECT derived_id(id_from, uuid_send(webhook) || uuid_send(event_id) || convert_to(event_type, 'UTF8')) AS id
    OFFSET 0
) AS candidate
CROSS JOIN LATERAL (
    SELECT id FROM deliveries
    WHERE deliveries.id = candidate.id AND deliveries.id >= week.first_id AND deliveries.id < week.end_id
        AND deliveries.event_type = event.event_type AND state = 'pending' AND attempts = 0
    LIMIT 1
) AS found
