-- Deletes those of the next events after ($1, $2, $3, $4) that were stored before $5 and to which no delivery refers.
-- Gathers the events that deliveries refer to once per chunk, however many fired in one millisecond.
WITH chunk AS MATERIALIZED (
    SELECT
        occurred_at, id, tenant_id, event_type, received_at,
        greatest(0, (extract(epoch FROM occurred_at) * 1000)::bigint) AS millis
    FROM events_{day}
    WHERE (occurred_at, id, tenant_id, event_type) > ($1, $2, $3, $4)
    ORDER BY occurred_at, id, tenant_id, event_type
    LIMIT {rows}
)
, gone AS (
    DELETE FROM events_{day} AS e
    USING chunk
    WHERE e.occurred_at = chunk.occurred_at AND e.id = chunk.id
        AND e.tenant_id = chunk.tenant_id AND e.event_type = chunk.event_type
        AND chunk.received_at < $5
        AND (chunk.id, chunk.event_type) NOT IN (
            SELECT event_id, event_type FROM deliveries_{day} AS d
            WHERE d.id >= (SELECT (lpad(to_hex(min(millis)), 12, '0') || repeat('0', 20))::uuid FROM chunk)
                AND d.id < (SELECT (lpad(to_hex(max(millis) + 1), 12, '0') || repeat('0', 20))::uuid FROM chunk)
        )
    RETURNING e.id
)
SELECT
    last.occurred_at, last.id, last.tenant_id, last.event_type,
    (SELECT count(*) FROM chunk) AS looked,
    (SELECT count(*) FROM gone) AS gone
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT * FROM chunk ORDER BY occurred_at DESC, id DESC, tenant_id DESC, event_type DESC LIMIT 1
) AS last ON true
