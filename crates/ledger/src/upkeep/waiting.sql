-- A chunk of deliveries, and those of it that wait and whose jobs are neither in the outbox nor held: those are certain
-- to come. `find_waiting.sql` or `find_overdue.sql` goes on.
--
-- No index names a delivery's state: it would end the in-place updates (HOT) that the hot path depends on. So this
-- walks along the primary key, in chunks. `OFFSET 0` keeps a subquery a look-up for each row: nothing is joined,
-- whatever the planner believes of the tables.
WITH chunk AS MATERIALIZED (
    SELECT id, webhook_id, state, attempts, created_at, coalesce(next_attempt_at, created_at) AS due
    FROM deliveries WHERE id > $1 ORDER BY id LIMIT {rows}
)
, waiting AS (
    SELECT c.id, c.attempts, c.created_at, c.due, c.webhook_id, w.is_active
    FROM chunk AS c
    CROSS JOIN LATERAL (SELECT is_active FROM webhooks WHERE id = c.webhook_id AND deleted_at IS NULL LIMIT 1) AS w
    WHERE c.state IN ('pending', 'retrying')
        AND NOT EXISTS (SELECT FROM promised_jobs AS p WHERE p.delivery_id = c.id OFFSET 0)
        AND NOT EXISTS (
            SELECT FROM held_jobs AS h WHERE h.webhook_id = c.webhook_id AND h.delivery_id = c.id OFFSET 0
        )
)
