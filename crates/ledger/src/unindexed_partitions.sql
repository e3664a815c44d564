-- Partitions of `events` whose index is not attached to the index $1. It may be missing, unfinished or built. An index
-- is named after its partition, with $2 at the end.
SELECT c.relname::text AS partition, coalesce(x.indisvalid, false) AS is_built
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
LEFT JOIN pg_index AS x ON x.indexrelid = to_regclass(c.relname || $2)
WHERE i.inhparent = 'events'::regclass AND NOT EXISTS (
    SELECT FROM pg_inherits AS k
    JOIN pg_index AS p ON p.indexrelid = k.inhrelid
    WHERE k.inhparent = to_regclass($1) AND p.indrelid = c.oid
)
ORDER BY c.relname
