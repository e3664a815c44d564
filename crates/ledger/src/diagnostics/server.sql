-- The server, as it says itself. Without the role `pg_monitor`, a user sees of a standby and of others' connections
-- only that they are there.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    current_setting('synchronous_standby_names') AS synchronous_names,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean AS is_durable,
    standby.*, client.*, frozen.*, own.*, archive.*,
    -- Parameters and limits that do not hold for a superuser.
    CASE WHEN NOT role.rolsuper THEN quote_ident(role.rolname) END AS role,
    current_setting('max_connections')::integer - CASE WHEN role.rolsuper THEN 0 ELSE
        current_setting('superuser_reserved_connections')::integer
        + coalesce(current_setting('reserved_connections', true)::integer, 0) -- since PostgreSQL 16
    END AS max_connections,
    CASE WHEN role.rolsuper THEN -1 ELSE role.rolconnlimit END AS role_limit,
    CASE WHEN role.rolsuper THEN -1 ELSE db.datconnlimit END AS database_limit,
    current_setting('max_locks_per_transaction')::integer AS max_locks,
    current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer AS lock_holders,
    current_setting('autovacuum_freeze_max_age')::bigint AS freeze_max_age,
    pg_database_size(current_database()) AS bytes
FROM (
    SELECT count(*) AS standbys, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
        count(*) FILTER (WHERE sync_state IS NULL) AS hidden
    FROM pg_stat_replication
) AS standby
CROSS JOIN (
    SELECT count(*) AS connections,
        count(*) FILTER (WHERE usename = session_user) AS of_role,
        count(*) FILTER (WHERE datname = current_database()) AS of_database,
        extract(epoch FROM now() - min(xact_start) FILTER (
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        ))::float8 AS oldest_transaction
    FROM pg_stat_activity WHERE datid IS NOT NULL
) AS client
-- PostgreSQL refuses writes in all databases when the ids of one are too old.
CROSS JOIN (
    SELECT datname::text AS oldest_database, age(datfrozenxid)::bigint AS ids_age
    FROM pg_database ORDER BY age(datfrozenxid) DESC LIMIT 1
) AS frozen
LEFT JOIN (
    SELECT
        coalesce((SELECT m.oid FROM pg_class AS m WHERE m.reltoastrelid = c.oid), c.oid)::regclass::text AS oldest_table,
        age(c.relfrozenxid)::bigint AS table_age
    FROM pg_class AS c WHERE c.relkind IN ('r', 'm', 't')
    ORDER BY age(c.relfrozenxid) DESC LIMIT 1
) AS own ON true
-- Without any file of the archive, its age is that of the statistics.
CROSS JOIN (
    SELECT current_setting('archive_mode') AS archive_mode,
        extract(epoch FROM now() - coalesce(last_archived_time, stats_reset))::float8 AS archive_age,
        coalesce(last_failed_time > last_archived_time, last_failed_time IS NOT NULL) AS archive_fails
    FROM pg_stat_archiver
) AS archive
CROSS JOIN pg_roles AS role
CROSS JOIN pg_database AS db
WHERE role.rolname = session_user AND db.datname = current_database()
