-- What became of an event, how a webhook fares, who changed what, and what administrators are told.
DO $$
BEGIN
    -- Nobody queues up behind this for long.
    SET LOCAL lock_timeout = '100ms';
    LOOP
        BEGIN
            -- In the order in which steps of recoveries and cancellations lock them, so that none is waited for later.
            LOCK TABLE recoveries, webhook_tasks, webhook_health, events, deliveries IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(1);
        END;
    END LOOP;
END $$;

-- The event's trace, as the upstream service sent it.
ALTER TABLE events ADD COLUMN traceparent text;

-- Finds an event by its id alone. The index exists on new partitions from now on; on the others, `migrate` builds it
-- afterwards, one by one, while everybody goes on reading and writing.
CREATE INDEX events_by_id ON ONLY events (id);

-- `skipped`: the webhook was paused when the event came. Rows of before hold no other value, so nothing is checked now.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_state_check;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_state_check
    CHECK (state IN ('pending', 'retrying', 'succeeded', 'dropped', 'cancelled', 'skipped')) NOT VALID;

ALTER TABLE recoveries
    ADD COLUMN states text[] NOT NULL DEFAULT '{dropped}',
    ADD COLUMN until  timestamptz; -- of events that fired before; all of them if null

-- A webhook that is not deleted: only what was made until then is cancelled.
ALTER TABLE webhook_tasks ADD COLUMN until timestamptz;

-- A failing period begins with the first failure since the last success, and ends with the next success.
ALTER TABLE webhook_health
    ADD COLUMN failing_since   timestamptz,
    ADD COLUMN last_failure_at timestamptz,
    ADD COLUMN last_failure    text,
    ADD COLUMN failing_notices smallint NOT NULL DEFAULT 0, -- of the failing period
    ADD COLUMN dropped         integer NOT NULL DEFAULT 0,  -- deliveries dropped in the failing period
    ADD COLUMN first_dropped   uuid,
    ADD COLUMN last_dropped    integer NOT NULL DEFAULT 0;  -- `dropped` of the failing period that the last success ended

UPDATE webhook_health SET failing_since = (SELECT min(at) FROM unnest(recent_failures) AS at) WHERE failure_count > 0;

-- Within a failing period its column does not change, so updates stay in place (HOT).
CREATE INDEX webhook_health_failing ON webhook_health (failing_since) WHERE failing_since IS NOT NULL;

-- Attempts of each webhook by the hour in which they ended. `bucket` n holds durations below 2^n milliseconds and not
-- below half of that; the last one holds all longer ones.
CREATE TABLE webhook_stats (
    webhook_id uuid NOT NULL,
    hour       timestamptz NOT NULL,
    outcome    text NOT NULL,
    bucket     smallint NOT NULL,
    attempts   integer NOT NULL,
    dropped    integer NOT NULL, -- how many of them dropped their delivery
    PRIMARY KEY (webhook_id, hour, outcome, bucket)
) WITH (fillfactor = 50); -- updated in place (HOT)

CREATE INDEX webhook_stats_by_hour ON webhook_stats (hour);

-- A UUID of version 7 (RFC 9562): ids made later sort later.
CREATE FUNCTION ordered_id() RETURNS uuid LANGUAGE sql VOLATILE
RETURN encode(set_bit(set_bit(
    overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1
    ),
    52, 1), 53, 1), 'hex')::uuid;

-- What administrators are told. The outbox relay publishes it.
CREATE TABLE notices (
    id           uuid PRIMARY KEY DEFAULT ordered_id(),
    webhook_id   uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    webhook_name text NOT NULL,
    notice_type  text NOT NULL,
    details      json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    leased_until timestamptz DEFAULT now() -- null once the broker has confirmed it
);

CREATE INDEX notices_by_webhook ON notices (webhook_id, id);
CREATE INDEX notices_unpublished ON notices (leased_until) WHERE leased_until IS NOT NULL;

-- What administrators did.
CREATE TABLE history (
    id         uuid PRIMARY KEY DEFAULT ordered_id(),
    tenant_id  uuid NOT NULL,
    webhook_id uuid NOT NULL,
    user_id    text NOT NULL,
    action     text NOT NULL,
    details    json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX history_by_webhook ON history (webhook_id, id);

-- A time as the API writes it.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- Adds the notices of a webhook that drops its first delivery in a failing period, or that has its first success after
-- one of which administrators were told something, or should have been.
CREATE FUNCTION add_health_notices() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    webhook webhooks := (SELECT w FROM webhooks AS w WHERE id = NEW.webhook_id AND deleted_at IS NULL);
    is_recovered boolean := TG_OP = 'UPDATE' AND NEW.last_success_at IS DISTINCT FROM OLD.last_success_at
        AND (OLD.failing_notices > 0 OR NEW.last_dropped > 0);
BEGIN
    IF webhook.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF is_recovered THEN
        INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
        VALUES (webhook.id, webhook.tenant_id, webhook.name, 'webhook.recovered', json_build_object(
            'failing_since', rfc3339(OLD.failing_since),
            'succeeded_at', rfc3339(NEW.last_success_at),
            'dropped', NEW.last_dropped,
            'first_dropped', CASE WHEN NEW.last_dropped > 0 THEN NEW.first_dropped END
        ));
    END IF;
    IF NEW.dropped > 0 AND (TG_OP = 'INSERT' OR OLD.dropped = 0 OR is_recovered) THEN
        INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
        VALUES (webhook.id, webhook.tenant_id, webhook.name, 'webhook.dropping', json_build_object(
            'failing_since', rfc3339(NEW.failing_since),
            'delivery_id', NEW.first_dropped,
            'last_failure', NEW.last_failure
        ));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER health_inserted AFTER INSERT ON webhook_health FOR EACH ROW
    WHEN (NEW.dropped > 0) EXECUTE FUNCTION add_health_notices();
CREATE TRIGGER health_updated AFTER UPDATE ON webhook_health FOR EACH ROW
    WHEN (
        NEW.dropped > 0 AND OLD.dropped = 0
        OR NEW.last_success_at IS DISTINCT FROM OLD.last_success_at AND (OLD.failing_notices > 0 OR NEW.last_dropped > 0)
    )
    EXECUTE FUNCTION add_health_notices();
