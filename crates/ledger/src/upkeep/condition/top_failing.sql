-- Webhooks that have failed since $1 and not succeeded after it, by the times of their latest failures (64 at the most).
SELECT h.webhook_id, w.tenant_id, f.failed, h.last_failure
FROM webhook_health AS h
CROSS JOIN LATERAL (SELECT count(*) AS failed FROM unnest(h.recent_failures) AS at WHERE at >= $1) AS f
CROSS JOIN LATERAL (SELECT tenant_id, deleted_at FROM webhooks WHERE id = h.webhook_id OFFSET 0) AS w
WHERE h.last_failure_at >= $1 AND f.failed > 0 AND w.deleted_at IS NULL
ORDER BY f.failed DESC, h.webhook_id
LIMIT $2
