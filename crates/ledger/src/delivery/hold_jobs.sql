-- Holds jobs: those of a paused webhook until it is active again, and others that found no free attempt (`batch` > 0).
-- Returns their numbers. The share lock makes an activation wait, so that it finds the jobs that are held here; a
-- job of a webhook that is being changed is not held. A job that is held already keeps the greater number of deliveries by
-- the broker.
--
-- Held jobs of an active webhook are published again `pause` seconds after the last time, `batch` at first. If one of them
-- has to be held again, fewer are published, `pause` seconds later. The row is locked in any case, for `release_jobs.sql`.
, known AS MATERIALIZED (
    SELECT id, is_active FROM webhooks WHERE id IN (SELECT webhook FROM job) AND deleted_at IS NULL
)
, paused AS MATERIALIZED (
    SELECT id FROM webhooks
    WHERE id IN (SELECT id FROM known WHERE NOT is_active) AND NOT is_active
    ORDER BY id FOR SHARE SKIP LOCKED
)
, chosen AS MATERIALIZED (
    SELECT job.*, known.is_active
    FROM job JOIN known ON known.id = job.webhook
    WHERE CASE WHEN known.is_active THEN job.batch > 0 ELSE known.id IN (SELECT id FROM paused) END
)
, held AS (
    INSERT INTO held_jobs AS h (webhook_id, delivery_id, reason, delivery_count)
    SELECT webhook, delivery, CASE WHEN is_active THEN 'slow' ELSE 'paused' END, max(delivery_count)
    FROM chosen GROUP BY webhook, delivery, is_active ORDER BY webhook, delivery
    ON CONFLICT (webhook_id, delivery_id) DO UPDATE SET delivery_count = excluded.delivery_count
    WHERE h.delivery_count < excluded.delivery_count
)
, releasing AS (
    INSERT INTO held_webhooks AS h (webhook_id, batch, released_at, release_at)
    SELECT webhook, min(batch), now(), now() + max(pause) * interval '1 second'
    FROM chosen WHERE is_active GROUP BY webhook ORDER BY webhook
    ON CONFLICT (webhook_id) DO UPDATE SET
        batch = greatest(excluded.batch, h.batch / 16),
        release_at = greatest(h.release_at, h.released_at + (excluded.release_at - excluded.released_at))
    WHERE EXISTS (SELECT FROM chosen WHERE webhook = h.webhook_id AND is_again)
)
SELECT number FROM chosen
