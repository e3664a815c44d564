-- How many deliveries wait for a retry: exactly among the oldest $1 that did not go well, and of all by the statistics
-- that the server keeps.
SELECT seen.*, estimate.*
FROM (
    SELECT count(*) FILTER (WHERE state = 'retrying') AS counted, count(*) AS looked_at
    FROM (SELECT state FROM unsuccessful_deliveries ORDER BY delivery_id LIMIT $1) AS u
) AS seen
CROSS JOIN (
    SELECT c.reltuples::float8 * (
        SELECT s.most_common_freqs[array_position(s.most_common_vals::text::text[], 'retrying')]
        FROM pg_stats AS s
        WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = 'state'
    ) AS estimated
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = 'unsuccessful_deliveries'::regclass
) AS estimate
