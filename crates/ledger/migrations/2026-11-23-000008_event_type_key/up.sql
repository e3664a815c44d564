-- `migrate` has built the new key on every partition before this.
DO $$
BEGIN
    SET LOCAL lock_timeout = '500ms';
    LOOP
        BEGIN
            LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
    ALTER TABLE events DROP CONSTRAINT events_pkey;
END $$;
