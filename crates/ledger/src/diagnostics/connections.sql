-- Connections to this database by name and host. The leader's is the one that holds the advisory lock $1, which
-- `pg_locks` shows as two halves.
WITH leader AS MATERIALIZED (
    SELECT l.pid
    FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.classid::bigint = ($1::bigint >> 32) AND l.objid::bigint = ($1::bigint & 4294967295)
)
SELECT
    application_name AS name, host(client_addr) AS address, count(*) AS connections,
    count(*) FILTER (WHERE wait_event = 'SyncRep' AND state_change < now() - interval '20 s') AS committing, min(backend_start) AS since,
    bool_or(pid IN (SELECT pid FROM leader)) AS leads
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
GROUP BY application_name, client_addr
ORDER BY application_name, client_addr
