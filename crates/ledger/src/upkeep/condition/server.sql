-- The server, as it says itself. Without the role `pg_monitor`, a user sees of a standby and of others' connections
-- only that they are there.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    current_setting('synchronous_standby_names') AS synchronous_names,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean AS is_durable,
    standby.*, client.*,
    current_setting('max_connections')::integer AS max_connections,
    pg_database_size(current_database()) AS bytes
FROM (
    SELECT count(*) AS standbys, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
        count(*) FILTER (WHERE sync_state IS NULL) AS hidden
    FROM pg_stat_replication
) AS standby
CROSS JOIN (
    SELECT count(*) AS connections,
        extract(epoch FROM now() - min(xact_start) FILTER (
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        ))::float8 AS oldest_transaction
    FROM pg_stat_activity WHERE datid IS NOT NULL
) AS client
