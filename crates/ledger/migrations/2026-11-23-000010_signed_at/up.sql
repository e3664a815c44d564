-- A stored signature is over the body alone: whoever reads it could send the body again with a fresh time. What stays is the
-- time that was signed, in whole seconds. Rows of before have none: theirs is the second in which the attempt began. Both
-- changes are to the catalogue alone, so no row is rewritten under the lock.
DO $$
BEGIN
    -- Nobody queues up behind this for long.
    SET LOCAL lock_timeout = '500ms';
    LOOP
        BEGIN
            LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
END $$;

ALTER TABLE attempts ADD COLUMN signed_at timestamptz, DROP COLUMN signature;
