-- What became of events of a tenant: a row for each event and each webhook that the tenant has or had, with its delivery
-- if there is one. `event` has a row for each of the few events, `asker` one for the tenant. A delivery has one of two
-- ids: derived with the event type, or without it (see `wanted_events.sql`) if the event is as old as `delivery_ids`
-- says. The LIMIT makes each a look-up in the partition of its day.

-- Each half is the whole of a partial index. OFFSET leaves the planner no other way.
, mine AS MATERIALIZED (
    SELECT own.* FROM asker
    CROSS JOIN LATERAL (
        (
            SELECT id, name, events, created_at, deleted_at FROM webhooks
            WHERE tenant_id = asker.tenant AND deleted_at IS NULL OFFSET 0
        )
        UNION ALL
        (
            SELECT id, name, events, created_at, deleted_at FROM webhooks
            WHERE tenant_id = asker.tenant AND deleted_at IS NOT NULL OFFSET 0
        )
    ) AS own
)
SELECT
    event.number,
    mine.id, mine.name, event.event_type = ANY (mine.events), mine.created_at, mine.deleted_at,
    d.id, d.state, d.attempts, d.next_attempt_at, d.created_at, d.is_test
FROM event
CROSS JOIN mine
LEFT JOIN LATERAL (
    SELECT found.*
    FROM unnest(ARRAY[
        derived_id(moment, uuid_send(mine.id) || uuid_send(event_id) || convert_to(event_type, 'UTF8')),
        CASE WHEN occurred_at <= (SELECT without_types_until FROM delivery_ids)
            THEN derived_id(moment, uuid_send(mine.id) || uuid_send(event_id)) END
    ]) AS candidate(id)
    CROSS JOIN LATERAL (
        SELECT id, state, attempts, next_attempt_at, created_at, is_test FROM deliveries
        WHERE deliveries.id = candidate.id AND deliveries.event_type = event.event_type
            AND deliveries.webhook_id = mine.id
        LIMIT 1
    ) AS found
    LIMIT 1
) AS d ON true
ORDER BY event.number, mine.id
