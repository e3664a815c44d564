-- Stores the events that some webhook wants, and derives their deliveries. `pair` has the pairs of tenant and event
-- type, so that each is looked up once. A pair's events have the numbers from `first` to `last`. `event` has the events'
-- columns as arrays: rows would copy the bodies. `store_events.sql` or `store_old_events.sql` goes on.
--
-- Rows are inserted in the order of pairs, numbers and webhooks, so that two batches with the same events wait for one
-- another and do not deadlock: set-returning functions in lists of columns leave the planner no other order.

-- The webhooks that want a pair's events. The OFFSET leaves the planner no other way than to look a pair up.
, wanted AS MATERIALIZED (
    SELECT pair.*, ARRAY(
        SELECT id FROM (
            SELECT id FROM webhooks
            WHERE tenant_id = pair.tenant AND deleted_at IS NULL AND is_active AND pair.event_type = ANY (events)
            OFFSET 0
        ) AS found ORDER BY id
    ) AS webhooks
    FROM pair
)

, stored AS (
    INSERT INTO events (occurred_at, id, tenant_id, event_type, body)
    SELECT event.occurred_at[n], event.event_id[n], tenant, event_type, event.body[n]
    FROM (SELECT *, generate_series(first, last) AS n FROM wanted WHERE webhooks <> '{}') AS numbered
    CROSS JOIN event
    ON CONFLICT DO NOTHING
)

-- `id` is what `domain::DeliveryId::derive` makes: the milliseconds of `moment`, then bytes of a SHA-256, in which the
-- bits of the version (8) and the variant (RFC 9562) are set. `old_id` is the one without the event type.
, delivery AS (
    SELECT
        encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
            overlay(uuid_send(event.moment[n]) PLACING substring(sha256(
                uuid_send(webhook) || uuid_send(event.event_id[n]) || convert_to(event_type, 'UTF8')
            ) FOR 10) FROM 7),
            55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid AS id,
        encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
            overlay(uuid_send(event.moment[n]) PLACING substring(sha256(
                uuid_send(webhook) || uuid_send(event.event_id[n])
            ) FOR 10) FROM 7),
            55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid AS old_id,
        webhook, event.event_id[n] AS event_id, event_type
    FROM (
        SELECT *, unnest(webhooks) AS webhook
        FROM (SELECT *, generate_series(first, last) AS n FROM wanted) AS numbered
    ) AS unnested
    CROSS JOIN event
)
