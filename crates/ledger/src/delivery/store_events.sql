-- Stores the events that some webhook wants, and their deliveries. `pair` has the pairs of tenant and event type, so
-- that each is looked up once. A pair's events have the numbers from `first` to `last`. `event` has the events' columns
-- as arrays: rows would copy the bodies. Returns the new deliveries with whether they are skipped and the number of
-- their event, and the numbers of events that no webhook wants, or that are left for another statement.
--
-- Rows are inserted in the order of pairs, numbers and webhooks, so that two batches with the same events wait for one
-- another and do not deadlock: set-returning functions in lists of columns leave the planner no other order.

-- The webhooks that want a pair's events, and which of them are active: the others skip the events. The OFFSET leaves
-- the planner no other way than to look a pair up.
, wanted AS MATERIALIZED (
    SELECT pair.*, found.*
    FROM pair
    CROSS JOIN LATERAL (
        SELECT
            coalesce(array_agg(id ORDER BY id), '{}') AS webhooks,
            coalesce(array_agg(is_active ORDER BY id), '{}') AS active
        FROM (
            SELECT id, is_active FROM webhooks
            WHERE tenant_id = pair.tenant AND deleted_at IS NULL AND pair.event_type = ANY (events)
            OFFSET 0
        ) AS subscribed
    ) AS found
)

-- The events that this statement stores: those of each pair until the number `until`. They make 20,000 deliveries at most,
-- unless one event alone makes more. Whole pairs are stored, the one with the fewest deliveries first, and a part of a
-- pair only if it is the first. With `below`, only pairs with fewer deliveries are stored.
, chosen AS MATERIALIZED (
    SELECT
        tenant, event_type, webhooks, active, first, last,
        CASE
            WHEN sum <= 20000 AND (below IS NULL OR deliveries < below) THEN last
            WHEN sum = deliveries AND below IS NULL THEN first - 1 + greatest(1, 20000 / cardinality(webhooks))
            ELSE first - 1
        END AS until
    FROM (
        SELECT *, sum(deliveries) OVER (ORDER BY deliveries, first) AS sum
        FROM (SELECT *, cardinality(webhooks) * (last - first + 1) AS deliveries FROM wanted) AS counted
    ) AS summed
    ORDER BY first
)

-- `id` is what `domain::DeliveryId::derive` makes. `id_from` is the least id of the event's millisecond. A delivery of
-- an old event is due now, and so has a place in the index of waiting deliveries: the leader's cursor of untried deliveries
-- may have passed its id.
, delivery AS (
    SELECT
        derived_id(
            event.id_from[n],
            uuid_send(webhook) || uuid_send(event.event_id[n]) || convert_to(event_type, 'UTF8')
        ) AS id,
        n, webhook, event.event_id[n] AS event_id, event_type,
        CASE WHEN is_active THEN 'pending' ELSE 'skipped' END AS state,
        CASE WHEN is_active AND event.occurred_at[n] < now() - interval '1 day' THEN now() END AS due
    FROM (
        SELECT *, unnest(webhooks) AS webhook, unnest(active) AS is_active
        FROM (SELECT *, generate_series(first, until) AS n FROM chosen) AS numbered
    ) AS unnested
    CROSS JOIN event
)

, made AS (
    INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, next_attempt_at)
    SELECT id, webhook, event_id, event_type, state, due FROM delivery
    ON CONFLICT DO NOTHING RETURNING id, state
)

-- After the deliveries: retention locks the tables in this order too (`LOCK` in `leader/retention.rs`).
, stored AS (
    INSERT INTO events (occurred_at, id, tenant_id, event_type, body, traceparent)
    SELECT event.occurred_at[n], event.event_id[n], tenant, event_type, event.body[n], event.traceparent[n]
    FROM (SELECT *, generate_series(first, until) AS n FROM chosen WHERE webhooks <> '{}') AS numbered
    CROSS JOIN event
    ON CONFLICT DO NOTHING
)

-- An inserted row does not say of which event it is. Its id is searched in the sorted ids: a join of these would compare
-- each id with each.
, of_events AS (
    SELECT array_agg(id) AS ids, array_agg(n) AS numbers FROM (SELECT id, n FROM delivery ORDER BY id) AS sorted
)
SELECT id, state = 'skipped', numbers[width_bucket(id, ids)], NULL FROM made CROSS JOIN of_events
UNION ALL
SELECT NULL, false, first, last FROM chosen WHERE webhooks = '{}'
UNION ALL
SELECT NULL, true, until + 1, last FROM chosen WHERE until < last
