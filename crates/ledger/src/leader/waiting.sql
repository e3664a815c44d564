-- A chunk of deliveries, and those of it that wait and whose jobs are not held: a held job comes by itself.
-- `find_waiting.sql` or `find_overdue.sql` follows. The caller fills in the chunk's rows (`Stream::rows`).
--
-- `OFFSET 0` keeps a subquery a look-up for each row: nothing is joined, whatever the planner believes of the tables.
WITH chunk AS MATERIALIZED (
    SELECT *, row_number() OVER () AS number FROM ({chunk} LIMIT {rows}) AS step
)
, waiting AS (
    SELECT c.id, c.due, c.webhook_id, w.is_active
    FROM chunk AS c
    CROSS JOIN LATERAL (SELECT is_active FROM webhooks WHERE id = c.webhook_id AND deleted_at IS NULL LIMIT 1) AS w
    WHERE c.waits
        AND NOT EXISTS (
            SELECT FROM held_jobs AS h WHERE h.webhook_id = c.webhook_id AND h.delivery_id = c.id OFFSET 0
        )
)
