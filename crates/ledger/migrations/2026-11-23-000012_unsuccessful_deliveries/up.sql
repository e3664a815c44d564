-- Deliveries that failed and wait, were dropped or were cancelled: a narrow row each, beside `deliveries`, whose updates stay
-- in place (HOT) because no index of it names a state. A first attempt that succeeds writes nothing here.
CREATE TABLE unsuccessful_deliveries (
    delivery_id     uuid PRIMARY KEY,
    webhook_id      uuid NOT NULL,
    state           text NOT NULL,
    next_attempt_at timestamptz
) WITH (fillfactor = 70); -- a retry that fails again changes its row in place (HOT)

CREATE INDEX unsuccessful_deliveries_by_state ON unsuccessful_deliveries (webhook_id, state, delivery_id);

-- Whoever changes a delivery holds its row until the end of the transaction, so its row here has one writer at a time.
CREATE FUNCTION keep_unsuccessful_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM unsuccessful_deliveries WHERE delivery_id = OLD.id;
    ELSIF NEW.state IN ('pending', 'succeeded') THEN
        DELETE FROM unsuccessful_deliveries WHERE delivery_id = NEW.id;
    ELSE
        INSERT INTO unsuccessful_deliveries (delivery_id, webhook_id, state, next_attempt_at)
        VALUES (NEW.id, NEW.webhook_id, NEW.state, NEW.next_attempt_at)
        ON CONFLICT (delivery_id) DO UPDATE SET state = excluded.state, next_attempt_at = excluded.next_attempt_at;
    END IF;
    RETURN NULL;
END
$$;

DO $$
BEGIN
    -- Nobody queues up behind this for long, even while an autovacuum holds it up for an hour.
    SET LOCAL lock_timeout = '100ms';
    LOOP
        BEGIN
            LOCK TABLE deliveries IN SHARE ROW EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(2);
        END;
    END LOOP;
END $$;

CREATE TRIGGER unsuccessful_inserted AFTER INSERT ON deliveries FOR EACH ROW
    WHEN (NEW.state NOT IN ('pending', 'succeeded')) EXECUTE FUNCTION keep_unsuccessful_deliveries();
CREATE TRIGGER unsuccessful_updated AFTER UPDATE ON deliveries FOR EACH ROW
    WHEN (OLD.state NOT IN ('pending', 'succeeded') OR NEW.state NOT IN ('pending', 'succeeded'))
    EXECUTE FUNCTION keep_unsuccessful_deliveries();
CREATE TRIGGER unsuccessful_deleted AFTER DELETE ON deliveries FOR EACH ROW
    WHEN (OLD.state NOT IN ('pending', 'succeeded')) EXECUTE FUNCTION keep_unsuccessful_deliveries();
