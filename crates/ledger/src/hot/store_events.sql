-- Returns the new deliveries with whether they are skipped, and the numbers of events that no webhook wants.
, made AS (
    INSERT INTO deliveries (id, webhook_id, event_id, event_type, state)
    SELECT id, webhook, event_id, event_type, state FROM delivery
    ON CONFLICT DO NOTHING RETURNING id, event_id, state
)
SELECT id, event_id, state = 'skipped', NULL, NULL FROM made
UNION ALL
SELECT NULL, NULL, NULL, first, last FROM wanted WHERE webhooks = '{}'
