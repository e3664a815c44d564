-- Returns the new deliveries, and the numbers of events that no webhook wants.
, made AS (
    INSERT INTO deliveries (id, webhook_id, event_id, event_type)
    SELECT id, webhook, event_id, event_type FROM delivery
    ON CONFLICT DO NOTHING RETURNING id, event_id
)
SELECT id, event_id, NULL, NULL FROM made
UNION ALL
SELECT NULL, NULL, first, last FROM wanted WHERE webhooks = '{}'
