-- Reads the next $3 rows of a table along its primary key, after $1, and deletes those of $2 that are done with. Returns the
-- last key, and how many of $2 stay.
WITH step AS MATERIALIZED (
    SELECT {key}, {of} FROM {table} WHERE {key} > $1::{key_type} ORDER BY {key} LIMIT $3
)
, gone AS (
    DELETE FROM {table} AS t USING (SELECT {key} FROM step WHERE {of} = ANY ($2)) AS theirs
    WHERE t.{key} = theirs.{key} AND {done}
    RETURNING t.{key}
)
SELECT
    (SELECT {key}::text FROM step ORDER BY {key} DESC LIMIT 1) AS last,
    (SELECT count(*) FROM step) AS looked,
    (SELECT count(*) FROM gone) AS gone,
    (SELECT count(*) FROM step WHERE {of} = ANY ($2)) - (SELECT count(*) FROM gone) AS kept
