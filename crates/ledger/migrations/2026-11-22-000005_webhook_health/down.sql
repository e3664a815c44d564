LOCK TABLE webhook_health IN SHARE ROW EXCLUSIVE MODE;

UPDATE webhooks AS w SET last_success_at = h.last_success_at, failure_count = h.failure_count,
                         recent_failures = coalesce(h.recent_failures, '{}')
FROM webhook_health AS h WHERE h.webhook_id = w.id;

ALTER TABLE webhooks SET (fillfactor = 70);

DROP TABLE webhook_health;
