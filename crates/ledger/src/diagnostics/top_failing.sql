-- Webhooks that have failed since $1, by their failures since the last success.
SELECT h.webhook_id, w.tenant_id, h.failure_count::bigint AS failed, h.last_failure
FROM webhook_health AS h
CROSS JOIN LATERAL (SELECT tenant_id, deleted_at FROM webhooks WHERE id = h.webhook_id OFFSET 0) AS w
WHERE h.last_failure_at >= $1 AND h.failure_count > 0 AND w.deleted_at IS NULL
ORDER BY h.failure_count DESC, h.webhook_id
LIMIT $2
