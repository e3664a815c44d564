DROP TABLE
    webhooks, events, deliveries, attempts, unsuccessful_deliveries, webhook_health, webhook_stats, promised_jobs,
    held_jobs, held_webhooks, suspect_jobs, requeued_jobs, broker_generation, brakes, recoveries, webhook_tasks,
    notices, history, admin_sessions, erased_deliveries;
DROP FUNCTION ordered_id, derived_id, keep_unsuccessful_deliveries, rfc3339, add_health_notices, repeat_in_kept;
DROP DOMAIN known_delivery;
