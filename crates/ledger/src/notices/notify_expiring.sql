-- Looks at the next webhooks after $1 with held jobs. Adds the notice that their oldest delivery is about to be cancelled,
-- where its day goes within a week: $2 seconds after the day's end. A paused webhook gets one in each pause, and an active
-- one, whose receiver is too slow, one a week, if jobs have been held for more than a day.
WITH RECURSIVE holder(number, webhook_id, delivery_id, held_at) AS (
    (
        SELECT 1, webhook_id, delivery_id, held_at FROM held_jobs
        WHERE webhook_id > $1 ORDER BY webhook_id, delivery_id LIMIT 1
    )
    UNION ALL
    SELECT holder.number + 1, next.*
    FROM holder
    CROSS JOIN LATERAL (
        SELECT webhook_id, delivery_id, held_at FROM held_jobs
        WHERE webhook_id > holder.webhook_id ORDER BY webhook_id, delivery_id LIMIT 1
    ) AS next
    WHERE holder.number < {rows}
)
, expiring AS MATERIALIZED (
    SELECT w.*, h.held_at, day.goes_at
    FROM holder AS h
    CROSS JOIN LATERAL (
        SELECT date_trunc('day', moment_of(h.delivery_id), 'UTC') + interval '24 hours' + $2 * interval '1 second' AS goes_at
    ) AS day
    CROSS JOIN LATERAL (
        SELECT id, tenant_id, name, is_active, coalesce(paused_at, created_at) AS paused_at
        FROM webhooks WHERE id = h.webhook_id AND deleted_at IS NULL LIMIT 1
    ) AS w
    -- The very oldest jobs of an active webhook may just have been published and held again.
    WHERE day.goes_at < now() + interval '7 days' AND (NOT w.is_active OR EXISTS (
        SELECT FROM (
            SELECT held_at FROM held_jobs WHERE webhook_id = w.id ORDER BY webhook_id, delivery_id LIMIT {rows}
        ) AS oldest
        WHERE oldest.held_at < now() - interval '1 day'
    ))
)
, notified AS (
    INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
    SELECT id, tenant_id, name, 'webhook.expiring', json_build_object(
        'reason', CASE WHEN is_active THEN 'slow' ELSE 'paused' END,
        'held_since', rfc3339(held_at),
        'cancelled_after', rfc3339(greatest(goes_at, now()))
    )
    FROM expiring AS e
    WHERE NOT EXISTS (
        SELECT FROM notices AS n
        WHERE n.webhook_id = ANY (ARRAY[e.id]) AND n.notice_type = 'webhook.expiring'
            AND n.created_at >= CASE WHEN e.is_active THEN now() - interval '7 days' ELSE e.paused_at END
        OFFSET 0
    )
    RETURNING webhook_id
)
SELECT
    (SELECT webhook_id FROM holder WHERE number = {rows}) AS next,
    (SELECT count(*) FROM holder) AS looked,
    (SELECT count(*) FROM notified) AS notified
