DROP TRIGGER health_inserted ON webhook_health;
DROP TRIGGER health_updated ON webhook_health;
DROP FUNCTION add_health_notices;
DROP TABLE history, notices, webhook_stats;
DROP FUNCTION ordered_id, rfc3339;
ALTER TABLE webhook_health
    DROP COLUMN failing_since,
    DROP COLUMN last_failure_at,
    DROP COLUMN last_failure,
    DROP COLUMN failing_notices,
    DROP COLUMN dropped,
    DROP COLUMN first_dropped,
    DROP COLUMN last_dropped;
ALTER TABLE webhook_tasks DROP COLUMN until;
ALTER TABLE recoveries DROP COLUMN states, DROP COLUMN until;
UPDATE deliveries SET state = 'cancelled' WHERE state = 'skipped';
ALTER TABLE deliveries DROP CONSTRAINT deliveries_state_check;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_state_check
    CHECK (state IN ('pending', 'retrying', 'succeeded', 'dropped', 'cancelled')) NOT VALID;
DROP INDEX events_by_id;
ALTER TABLE events DROP COLUMN traceparent;
