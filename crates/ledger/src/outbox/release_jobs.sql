-- Takes held jobs of active webhooks whose time has come, the oldest of each first, at most $1 of a webhook and some 1,000
-- in all. Webhooks that have waited longest come first. Returns their deliveries.
--
-- The caller has locked the rows of the webhooks $2: this statement, which begins later, sees all that was held before.
-- Four times as many jobs of a webhook are taken a second later, unless one of these has to be held again before
-- (`hold_jobs.sql`).
WITH ready AS MATERIALIZED (
    SELECT webhook_id, release_at, least(batch, $1) AS batch FROM held_webhooks WHERE webhook_id = ANY ($2)
)
, due AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, sum(batch) OVER (ORDER BY release_at, webhook_id) - batch AS before FROM ready
    ) AS r WHERE before < 1000
)
, active AS MATERIALIZED (
    SELECT id FROM webhooks WHERE id IN (SELECT webhook_id FROM due) AND is_active
)
, taken AS MATERIALIZED (
    SELECT job.* FROM due JOIN active ON active.id = due.webhook_id
    CROSS JOIN LATERAL (
        SELECT webhook_id, delivery_id, delivery_count FROM held_jobs
        WHERE webhook_id = due.webhook_id ORDER BY webhook_id, delivery_id LIMIT due.batch FOR UPDATE SKIP LOCKED
    ) AS job
)
, released AS (
    DELETE FROM held_jobs AS h USING taken WHERE h.webhook_id = taken.webhook_id AND h.delivery_id = taken.delivery_id
)
-- A webhook without held jobs needs no row, nor one that is paused: its activation makes one. The lock finds out whether
-- that has happened meanwhile; a webhook that is being changed keeps its row.
, paused AS MATERIALIZED (
    SELECT id FROM webhooks WHERE id IN (SELECT webhook_id FROM due) AND NOT is_active ORDER BY id FOR SHARE SKIP LOCKED
)
, over AS MATERIALIZED (
    SELECT webhook_id FROM due
    WHERE webhook_id IN (SELECT id FROM paused)
        OR NOT EXISTS (SELECT FROM held_jobs AS h WHERE h.webhook_id = due.webhook_id OFFSET 0)
)
, forgotten AS (
    DELETE FROM held_webhooks WHERE webhook_id IN (SELECT webhook_id FROM over)
)
, later AS (
    UPDATE held_webhooks AS h SET
        batch = least(h.batch, 250000) * 4, released_at = now(), release_at = now() + interval '1 second'
    FROM due WHERE h.webhook_id = due.webhook_id AND h.webhook_id NOT IN (SELECT webhook_id FROM over)
)
SELECT delivery_id, delivery_count FROM taken
