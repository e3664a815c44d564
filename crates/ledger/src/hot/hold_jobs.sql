-- Holds the jobs whose webhooks are paused. Returns their deliveries. The share lock makes an activation wait, so that
-- it finds the jobs held here. Jobs that come after it are not held.
, paused AS MATERIALIZED (
    SELECT id FROM webhooks WHERE id IN (SELECT webhook FROM job) AND NOT is_active ORDER BY id FOR SHARE
)
, held AS (
    INSERT INTO held_jobs (webhook_id, delivery_id)
    SELECT webhook, delivery FROM job JOIN paused ON paused.id = job.webhook
    ON CONFLICT DO NOTHING
)
SELECT job.delivery FROM job JOIN paused ON paused.id = job.webhook
