-- An event is (tenant, type, id, millisecond): its type belongs to its key. The index exists on new partitions from now on;
-- on those that are there `migrate` builds it, one after another, while everybody goes on reading and writing.
DO $$
BEGIN
    -- Nobody queues up behind this for long.
    SET LOCAL lock_timeout = '500ms';
    LOOP
        BEGIN
            LOCK TABLE ONLY events IN SHARE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
END $$;

CREATE UNIQUE INDEX events_key ON ONLY events (occurred_at, id, tenant_id, event_type);

-- The type belongs to what the delivery ids are derived from, too. Deliveries of events up to this moment may have ids that
-- were derived without it, and keep them. Events that fire more than 40 days ahead are not waited for.
CREATE TABLE delivery_ids (
    is_only             boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    without_types_until timestamptz NOT NULL
);

INSERT INTO delivery_ids (without_types_until)
SELECT CASE WHEN EXISTS (SELECT FROM webhooks)
       THEN least(greatest(now() + interval '1 day', (SELECT max(occurred_at) FROM events)), now() + interval '40 days')
       ELSE '-infinity' END;

-- Whose deliveries an event may have, deleted webhooks' included.
CREATE INDEX webhooks_ever_by_tenant ON webhooks (tenant_id, id);
