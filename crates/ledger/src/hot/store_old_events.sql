-- As `store_events.sql`, for events that may have deliveries with ids derived without the event type: such a delivery
-- keeps its id.
, made AS (
    INSERT INTO deliveries (id, webhook_id, event_id, event_type, state)
    SELECT id, webhook, event_id, event_type, state FROM delivery
    WHERE NOT EXISTS (
        SELECT FROM deliveries AS old WHERE old.event_type = delivery.event_type AND old.id = delivery.old_id
    )
    ON CONFLICT DO NOTHING RETURNING id, event_id, state
)
SELECT id, event_id, state = 'skipped', NULL, NULL FROM made
UNION ALL
SELECT NULL, NULL, NULL, first, last FROM wanted WHERE webhooks = '{}'
