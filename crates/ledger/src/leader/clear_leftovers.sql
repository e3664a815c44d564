-- Reads the next rows of a table along its primary key, and deletes those that nothing needs. Returns the last key.
WITH step AS MATERIALIZED (
    SELECT {key} FROM {table} WHERE ({key}) > ({after}) AND {range} ORDER BY {key} LIMIT {rows}
)
, gone AS (
    DELETE FROM {table} AS t USING step WHERE ({key_of_t}) = ({key_of_step}) AND {is_leftover} RETURNING t.{first}
)
SELECT
    last.first, last.second,
    (SELECT count(*) FROM step) AS looked,
    (SELECT count(*) FROM gone) AS gone
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT {first} AS first, {second} AS second FROM step ORDER BY {descending} LIMIT 1
) AS last ON true
