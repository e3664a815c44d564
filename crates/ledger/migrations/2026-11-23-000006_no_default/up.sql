-- No default partitions: an event's timestamp lies within a span, and whoever stores one makes its day if it is missing.
-- Rows of the default partitions move to partitions of their days, from 2000 to 2099; earlier and later ones, which only odd
-- timestamps had, to one partition before and one after, which the retention drops once they are empty.
-- Everybody waits while they move: about a second for every 50,000 rows or 40 days, and no time where there are none. With
-- rows of hundreds of days, `max_locks_per_transaction` has to allow for some 15 locks for each of them.

DO $$
DECLARE
    day date;
    parent text;
BEGIN
    -- Whoever works at length with these tables is not cut off, and nobody queues up behind this for long.
    SET LOCAL lock_timeout = '500ms';
    LOOP
        BEGIN
            LOCK TABLE events, deliveries, attempts IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;

    CREATE TEMPORARY TABLE odd ON COMMIT DROP AS
    SELECT DISTINCT (occurred_at AT TIME ZONE 'UTC')::date AS day FROM (
        SELECT occurred_at FROM events_default
        UNION ALL SELECT to_timestamp(('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
                  FROM deliveries_default
        UNION ALL SELECT to_timestamp(('x' || translate(left(delivery_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0)
                  FROM attempts_default
    ) AS moment;

    FOREACH parent IN ARRAY ARRAY['events', 'deliveries', 'attempts'] LOOP
        EXECUTE format('ALTER TABLE %1$s DETACH PARTITION %1$s_default', parent);
    END LOOP;

    CREATE FUNCTION pg_temp.first_id(moment timestamptz) RETURNS uuid LANGUAGE sql AS
    $f$ SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $f$;

    CREATE FUNCTION pg_temp.make(suffix text, first timestamptz, beyond timestamptz) RETURNS void LANGUAGE plpgsql AS
    $f$
    DECLARE
        moments text := format('FROM (%s) TO (%s)', coalesce(quote_literal(first), 'MINVALUE'),
                               coalesce(quote_literal(beyond), 'MAXVALUE'));
        ids text := format('FROM (%s) TO (%s)', coalesce(quote_literal(pg_temp.first_id(first)), 'MINVALUE'),
                           coalesce(quote_literal(pg_temp.first_id(beyond)), 'MAXVALUE'));
    BEGIN
        EXECUTE format('CREATE TABLE IF NOT EXISTS events_%s PARTITION OF events FOR VALUES %s '
                       'WITH (toast_tuple_target = 8160)', suffix, moments);
        EXECUTE format('CREATE TABLE IF NOT EXISTS deliveries_%s PARTITION OF deliveries FOR VALUES %s '
                       'WITH (fillfactor = 50)', suffix, ids);
        EXECUTE format('CREATE TABLE IF NOT EXISTS attempts_%s PARTITION OF attempts FOR VALUES %s', suffix, ids);
    END
    $f$;

    FOR day IN SELECT odd.day FROM odd WHERE odd.day >= '2000-01-01' AND odd.day < '2100-01-01' LOOP
        PERFORM pg_temp.make(to_char(day, 'YYYYMMDD'), day::timestamp AT TIME ZONE 'UTC',
                             (day + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
    IF EXISTS (SELECT FROM odd WHERE odd.day < '2000-01-01') THEN
        PERFORM pg_temp.make('before', NULL, '2000-01-01 00:00 UTC');
    END IF;
    IF EXISTS (SELECT FROM odd WHERE odd.day >= '2100-01-01') THEN
        PERFORM pg_temp.make('after', '2100-01-01 00:00 UTC', NULL);
    END IF;

    FOREACH parent IN ARRAY ARRAY['events', 'deliveries', 'attempts'] LOOP
        EXECUTE format('INSERT INTO %1$s SELECT * FROM %1$s_default', parent);
        EXECUTE format('DROP TABLE %1$s_default', parent);
    END LOOP;
    DROP FUNCTION pg_temp.make, pg_temp.first_id;
END $$;
