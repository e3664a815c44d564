-- Deletes the finished ones among the next deliveries after $1, with their attempts, if they were made before $2.
WITH chunk AS MATERIALIZED (SELECT id FROM deliveries_{part} WHERE id > $1 ORDER BY id LIMIT {rows})
, gone AS (
    DELETE FROM deliveries_{part} AS d
    WHERE d.id IN (SELECT id FROM chunk) AND d.created_at < $2 AND d.state NOT IN ('pending', 'retrying')
    RETURNING d.id
)
, logged AS (DELETE FROM attempts_{part} AS a USING gone WHERE a.delivery_id = gone.id)
SELECT
    (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS cursor,
    (SELECT count(*) FROM chunk) AS looked,
    (SELECT count(*) FROM gone) AS gone
