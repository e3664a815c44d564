-- What a removal of an old day has left behind.
DO $$
BEGIN
    EXECUTE coalesce((
        SELECT 'DROP TABLE ' || string_agg(relname, ', ') FROM pg_class
        WHERE relname ~ '^(deliveries|attempts|events)_\d{8}_kept$' AND relkind = 'r' AND pg_table_is_visible(oid)
    ), 'SELECT');
END
$$;
DROP TABLE
    webhooks, events, deliveries, attempts, unsuccessful_deliveries, webhook_health, webhook_stats, promised_jobs,
    held_jobs, held_webhooks, suspect_jobs, requeued_jobs, broker_generation, brakes, recoveries, webhook_tasks,
    notices, history, admin_sessions, erased_deliveries;
DROP FUNCTION ordered_id, derived_id, keep_unsuccessful_deliveries, rfc3339, add_health_notices, moment_of, copy_kept,
    repeat_in_kept;
DROP DOMAIN known_delivery;
