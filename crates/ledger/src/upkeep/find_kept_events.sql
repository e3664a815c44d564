-- Reads the next events of a day after ($1, $2, $3, $4), and counts those to which a delivery refers that waits for a webhook
-- that is not deleted. Deliveries are read once for each millisecond, however many events fired in it.
WITH chunk AS MATERIALIZED (
    SELECT
        occurred_at, id, tenant_id, event_type,
        greatest(0, (extract(epoch FROM occurred_at) * 1000)::bigint) AS millis
    FROM events_{day}
    WHERE (occurred_at, id, tenant_id, event_type) > ($1, $2, $3, $4)
    ORDER BY occurred_at, id, tenant_id, event_type
    LIMIT {rows}
)
, waiting AS MATERIALIZED (
    SELECT d.event_id, d.event_type
    FROM (SELECT DISTINCT millis FROM chunk) AS m
    CROSS JOIN LATERAL (
        SELECT webhook_id, event_id, event_type FROM deliveries_{day}
        WHERE id >= (lpad(to_hex(m.millis), 12, '0') || repeat('0', 20))::uuid
            AND id < (lpad(to_hex(m.millis + 1), 12, '0') || repeat('0', 20))::uuid
            AND state IN ('pending', 'retrying')
        OFFSET 0
    ) AS d
    CROSS JOIN LATERAL (SELECT FROM webhooks WHERE id = d.webhook_id AND deleted_at IS NULL LIMIT 1) AS w
)
SELECT
    last.occurred_at, last.id, last.tenant_id, last.event_type,
    (SELECT count(*) FROM chunk) AS looked,
    (SELECT count(*) FROM chunk WHERE (id, event_type) IN (SELECT event_id, event_type FROM waiting)) AS kept
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT * FROM chunk ORDER BY occurred_at DESC, id DESC, tenant_id DESC, event_type DESC LIMIT 1
) AS last ON true
