-- The latest $2 deliveries with ids after $1: how many there are, and the oldest of them.
WITH latest AS MATERIALIZED (
    SELECT id FROM deliveries WHERE id > $1 ORDER BY id DESC LIMIT $2
)
SELECT count(*) AS deliveries, (SELECT id FROM latest ORDER BY id LIMIT 1) AS oldest FROM latest
