-- The ledger's schema. Until 1.0 a change of the schema edits this file and renames its folder (CONTRIBUTING.md).
--
-- Tables come in the order in which an event meets them, then what they call. "The leader" is the leading
-- event-ingest, "a relay" the outbox relay of an api-service. Retention is the leader's; an erasure is `webhookctl
-- tenant erase`.

-- Registered webhooks. Administrators' requests write them (api-service), and `webhookctl keys reseal` what is sealed.
-- Read for each event (event-ingest), each attempt (dispatcher) and each page. A deleted webhook keeps its row, so
-- that its log can be read, until retention deletes its last delivery; for an hour or two, if it never had one.
CREATE TABLE webhooks (
    id             uuid PRIMARY KEY,
    tenant_id      uuid NOT NULL,
    name           text NOT NULL,
    description    text NOT NULL DEFAULT '', -- notes for administrators
    external_id    text, -- what the administrators' own system calls it
    url            text NOT NULL,
    events         text[] NOT NULL,
    is_active      boolean NOT NULL DEFAULT true,
    secret_key_id  text NOT NULL,
    secret_sealed  bytea NOT NULL,
    header_names   text[] NOT NULL DEFAULT '{}', -- its own headers
    headers_key_id text,
    headers_sealed bytea, -- names with values; null if there are none
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    paused_at      timestamptz, -- the beginning of its latest pause; null if it was inactive from the beginning, or never
    deleted_at     timestamptz,
    CHECK ((headers_sealed IS NULL) = (header_names = '{}') AND (headers_sealed IS NULL) = (headers_key_id IS NULL))
);

CREATE INDEX webhooks_by_tenant ON webhooks (tenant_id, id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX one_webhook_per_external_id ON webhooks (tenant_id, external_id) WHERE deleted_at IS NULL;
-- Those whose deliveries an event may have. A registration counts the deleted ones of its tenant.
CREATE INDEX webhooks_ever_by_tenant ON webhooks (tenant_id, id);

-- Events that at least one webhook wants, each once, with the exact body. event-ingest writes them, and an
-- api-service those of test deliveries. Dispatchers read them for each attempt, and api-services for the state of an
-- event and a sent body. Retention drops them by day, perhaps earlier than their deliveries (`retention.bodies`).
CREATE TABLE events (
    occurred_at timestamptz NOT NULL, -- the event's timestamp cut to milliseconds, as in the ids of its deliveries
    id          uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    event_type  text NOT NULL,
    body        bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    traceparent text, -- the event's trace, as the upstream service sent it
    PRIMARY KEY (occurred_at, id, tenant_id, event_type)
) PARTITION BY RANGE (occurred_at);

-- Finds an event by its id alone.
CREATE INDEX events_by_id ON events (id);

-- Bodies of a few KiB and more are compressed by lz4, which costs a fraction of the default's time. A server that was
-- built without it keeps the default.
DO $$ BEGIN
    ALTER TABLE events ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END $$;

-- Deliveries: one event for one webhook. event-ingest adds them, and an api-service those of tests. Dispatchers
-- record their progress; resends, recoveries and cancellations (api-service, webhookctl) change their state. Read for
-- each attempt, for the log, and by the leader's searches for jobs. Retention drops them by day.
--
-- An id begins with the milliseconds of the event's timestamp, so ranges of ids are ranges of days. No index names
-- `state` or `next_attempt_at`: the update of an attempt stays in its page (HOT). `next_attempt_at` is null before the
-- first attempt, unless that was postponed, asked for, or accepted more than a day after the event's timestamp, or
-- the leader's cursor has passed (`broker_generation.indexed_before`).
CREATE TABLE deliveries (
    id              uuid PRIMARY KEY, -- see `derived_id`
    webhook_id      uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    is_test         boolean NOT NULL DEFAULT false,
    state           text NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'retrying', 'succeeded', 'dropped', 'cancelled', 'skipped')),
    attempts        smallint NOT NULL DEFAULT 0,
    run_base        smallint NOT NULL DEFAULT 0, -- attempts made before this run of the schedule (a resend begins one)
    created_at      timestamptz NOT NULL DEFAULT now(),
    first_failed_at timestamptz,
    next_attempt_at timestamptz
) PARTITION BY RANGE (id);

CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, id);

-- Attempts: one POST each. Dispatchers write them, api-services show them. Retention drops them by day.
CREATE TABLE attempts (
    delivery_id   uuid NOT NULL,
    attempt       smallint NOT NULL,
    url           text NOT NULL,
    -- The time that was signed, in whole seconds. The signature is not stored: it is over the body alone, so a reader
    -- of the ledger could send the body again with a fresh time.
    signed_at     timestamptz NOT NULL DEFAULT date_trunc('second', now()),
    started_at    timestamptz NOT NULL,
    duration_us   bigint NOT NULL,
    outcome       text NOT NULL,
    status        smallint,
    response_body bytea NOT NULL, -- its first KiB
    error         text,
    PRIMARY KEY (delivery_id, attempt)
) PARTITION BY RANGE (delivery_id);

-- Deliveries that are not `succeeded`, except pending ones without a due time: a narrow row each. Triggers of
-- `deliveries` write them, so a first attempt that succeeds writes nothing here. Read by the log, recoveries, the
-- leader's searches for waiting deliveries, and the doctor. An erasure deletes them with their deliveries, and
-- retention those of the days that it drops.
CREATE TABLE unsuccessful_deliveries (
    delivery_id     uuid PRIMARY KEY,
    webhook_id      uuid NOT NULL,
    state           text NOT NULL,
    next_attempt_at timestamptz -- the delivery's, or when it was made: what waits is found by it
) WITH (autovacuum_vacuum_scale_factor = 0.02); -- the leader reads past what retries that have ended leave in the index

CREATE INDEX unsuccessful_deliveries_by_state ON unsuccessful_deliveries (webhook_id, state, delivery_id);
-- Finds waiting deliveries in the order in which they are due. A retry that fails again writes all indexes of its row
-- here: its due time changes.
CREATE INDEX unsuccessful_deliveries_by_due_time ON unsuccessful_deliveries (next_attempt_at, delivery_id)
    WHERE state IN ('pending', 'retrying');

-- A webhook's health, from its first outcome on. Dispatchers write it with each batch of attempts, and the leader
-- counts its notices. Read by api-services, `webhookctl top` and a dispatcher before it stops. Deleted with the
-- webhook's row. There is no foreign key: a webhook whose row somebody removed by hand must not stop the outcomes
-- that are recorded beside its own.
--
-- A failing period begins with the first failure since the last success, and ends with a success after which no failure
-- is known.
CREATE TABLE webhook_health (
    webhook_id       uuid PRIMARY KEY,
    last_success_at  timestamptz,
    failure_count    integer NOT NULL,
    failing_since    timestamptz,
    last_failure_at  timestamptz,
    last_failure     text,
    failing_notices  smallint NOT NULL DEFAULT 0, -- of the failing period
    dropped          integer NOT NULL DEFAULT 0,  -- deliveries dropped in the failing period
    first_dropped_id uuid,
    previous_dropped integer NOT NULL DEFAULT 0   -- `dropped` of the failing period that the last success ended
) WITH (fillfactor = 50); -- updated in place (HOT)

-- Within a failing period its column does not change, so updates stay in place (HOT).
CREATE INDEX webhook_health_failing ON webhook_health (failing_since) WHERE failing_since IS NOT NULL;

-- Attempts of each webhook by the hour in which they ended. Dispatchers write them, api-services show them, and the
-- leader deletes them after 90 days. `bucket` n holds durations below 2^n milliseconds and not below half of that;
-- the last one holds all longer ones.
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

-- The outbox: jobs that are promised to the queue and not yet confirmed there, of a resend, a test, a recovery or
-- jobs that were held. Their transaction writes them (api-service). Whoever leases one publishes and
-- deletes it; once the lease has ended, that is any relay.
CREATE TABLE promised_jobs (
    delivery_id    uuid PRIMARY KEY,
    leased_until   timestamptz NOT NULL,
    delivery_count smallint NOT NULL DEFAULT 0 -- of a job that was held: as in `held_jobs`
);

-- Jobs that wait without a message. `paused`: until the webhook is active again; `slow`: its receiver is slower than
-- its deliveries come. Dispatchers write them, and the leader in a rebuild. Relays release them.
CREATE TABLE held_jobs (
    webhook_id     uuid NOT NULL,
    delivery_id    uuid NOT NULL,
    reason         text NOT NULL DEFAULT 'paused' CHECK (reason IN ('paused', 'slow')),
    delivery_count smallint NOT NULL DEFAULT 0, -- by the broker, which counts from 0 for a new message
    held_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (webhook_id, delivery_id)
);

-- Active webhooks with held jobs: when the next jobs are released (`release_at`), and how many (`batch`). Whoever holds
-- a job writes it, and a request that activates a webhook. Relays read it, and delete it when no job is held.
CREATE TABLE held_webhooks (
    webhook_id  uuid PRIMARY KEY,
    batch       integer NOT NULL CHECK (batch > 0),
    released_at timestamptz NOT NULL,
    release_at  timestamptz NOT NULL
);

CREATE INDEX held_webhooks_by_time ON held_webhooks (release_at);

-- Deliveries whose job may crash dispatchers: delivered several times without an end, and begun one at a time. A
-- dispatcher writes a row before such a job begins, and deletes it at its end; it stays when the dispatcher dies with
-- the job. `dead_reason` is set when the job was moved to the queue of dead jobs, where it waits for an operator: the
-- delivery has no job anywhere else. Lost-job detection reads it, and `webhookctl dead requeue` deletes it.
CREATE TABLE suspect_jobs (
    delivery_id uuid PRIMARY KEY,
    tries       smallint NOT NULL,
    marked_at   timestamptz NOT NULL,
    dead_reason text
);

-- Overdue jobs that lost-job detection (the leader) published again. It reads them too: the same attempt again only
-- after an hour, then two, then four.
CREATE TABLE requeued_jobs (
    delivery_id   uuid PRIMARY KEY,
    attempt       smallint NOT NULL,
    requeued_at   timestamptz NOT NULL,
    requeue_count smallint NOT NULL DEFAULT 1
);

-- The broker's disk that the ledger believes in. A durable queue is named by `id`; when the broker answers and has no
-- such queue, it has lost its disk, and with it every job. A rebuild declares the queue of `rebuild_id` first,
-- publishes the jobs of all waiting deliveries, and makes that queue the one to believe in. Its cursors are the last
-- delivery of those with a due time (`rebuild_due`: null at the end), and of those without one (`rebuild_untried`: the
-- least id at the end). `indexed_before` is a cursor over the ids of deliveries: each waiting one before it has a due
-- time, and so a row in `unsuccessful_deliveries`. The leader writes and reads the one row; the doctor reads it.
CREATE TABLE broker_generation (
    is_only          boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id               uuid,
    indexed_before   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    rebuild_id       uuid,
    rebuild_began_at timestamptz,
    rebuild_due      timestamptz,
    rebuild_due_id   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    rebuild_untried  uuid NOT NULL DEFAULT 'ffffffff-ffff-ffff-ffff-ffffffffffff'
);

INSERT INTO broker_generation DEFAULT VALUES;

-- Reasons why dispatchers accept no jobs at present. The operator's row (`webhookctl brake`) stays until an operator
-- removes it. A dispatcher renews its own and removes it; one that was not renewed for a minute is a dead process's.
-- Read by dispatchers, api-services and the doctor.
CREATE TABLE brakes (
    holder     text PRIMARY KEY,
    reason     text NOT NULL,
    since      timestamptz NOT NULL DEFAULT now(),
    renewed_at timestamptz NOT NULL DEFAULT now()
);

-- Recoveries: deliveries of a webhook that were dropped or skipped in a period, resent in steps. A request
-- writes one (api-service), or `webhookctl recover`; relays take its steps.
CREATE TABLE recoveries (
    id           uuid PRIMARY KEY,
    webhook_id   uuid NOT NULL,
    since        timestamptz NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz,
    resent       integer NOT NULL DEFAULT 0,
    cursor       uuid NOT NULL, -- the last delivery that was read
    leased_until timestamptz NOT NULL DEFAULT '-infinity',
    states       text[] NOT NULL DEFAULT '{dropped}',
    outcomes     text[] NOT NULL DEFAULT '{}', -- of the last attempts; all of them if empty
    event_types  text[] NOT NULL DEFAULT '{}', -- all of them if empty
    until        timestamptz, -- of events that fired before; all of them if null
    is_stopped   boolean NOT NULL DEFAULT false -- ended by a request, before it had read all
);

-- One at a time per webhook: asking twice does not double the work.
CREATE UNIQUE INDEX recoveries_running ON recoveries (webhook_id) WHERE finished_at IS NULL;
-- Lists a webhook's recoveries. An erasure finds them.
CREATE INDEX recoveries_by_webhook ON recoveries (webhook_id, id);

-- Cancellations of waiting deliveries, in steps in the order of their ids. A request writes one (api-service); relays
-- and `webhookctl tenant stop` take its steps, however often the process that does it dies. `until` is null if the
-- webhook is deleted; else only what was made until then is cancelled.
CREATE TABLE cancellations (
    webhook_id   uuid PRIMARY KEY,
    cursor       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    leased_until timestamptz NOT NULL DEFAULT now(),
    until        timestamptz
);

-- A UUID of version 7 (RFC 9562): ids made later sort later. `notices`, `history` and `api_keys` have such ids.
CREATE FUNCTION ordered_id() RETURNS uuid LANGUAGE sql VOLATILE
RETURN encode(set_bit(set_bit(
    overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1
    ),
    52, 1), 53, 1), 'hex')::uuid;

-- Notices to administrators. Written by the transaction of a user's change, by triggers of `webhook_health`, and by
-- the leader (a webhook fails for long, or its held deliveries are about to be cancelled). Relays publish them,
-- api-services show them, and retention deletes them after 90 days.
CREATE TABLE notices (
    id           uuid PRIMARY KEY DEFAULT ordered_id(),
    webhook_id   uuid, -- null, like the name, of a notice about a key
    tenant_id    uuid NOT NULL,
    webhook_name text,
    notice_type  text NOT NULL,
    details      json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    leased_until timestamptz DEFAULT now() -- null once the broker has confirmed it
);

CREATE INDEX notices_by_webhook ON notices (webhook_id, id);
-- An erasure finds them.
CREATE INDEX notices_by_tenant ON notices (tenant_id);
CREATE INDEX notices_unpublished ON notices (leased_until) WHERE leased_until IS NOT NULL;

-- Changes by administrators and operators. Written by the transaction of the change (api-service, webhookctl), shown
-- by api-services. Retention deletes those that are 90 days old and not among the webhook's newest 1,000, and, once the
-- webhook's row is gone, all of them 90 days after its deletion.
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
-- Finds a tenant's deleted webhooks, its history, and for an erasure its entries.
CREATE INDEX history_by_tenant ON history (tenant_id, action, id);

-- Sessions of administrators: no id of a session, only its hash. Written by the business application or by
-- `webhookctl session`, read by api-services for each request, and deleted by the leader when they have expired.
CREATE TABLE admin_sessions (
    id_sha256  bytea PRIMARY KEY CHECK (length(id_sha256) = 32),
    tenant_id  uuid NOT NULL,
    user_id    text NOT NULL,
    role       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);

-- An erasure finds them.
CREATE INDEX admin_sessions_by_tenant ON admin_sessions (tenant_id);

-- Keys by which programs call the API for a tenant: no key, only its hash. Requests of administrators write them, and
-- `webhookctl key`; api-services read them for each request that shows a key. A revoked key has no row. Retention
-- deletes an expired one after 90 days.
CREATE TABLE api_keys (
    id           uuid PRIMARY KEY DEFAULT ordered_id(),
    tenant_id    uuid NOT NULL,
    name         text NOT NULL,
    key_sha256   bytea NOT NULL UNIQUE CHECK (length(key_sha256) = 32),
    created_by   text NOT NULL DEFAULT 'operator',
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz, -- null: never
    last_used_on date -- in UTC; null: never used
);

CREATE INDEX api_keys_by_tenant ON api_keys (tenant_id, id);

-- The id of a delivery, as `domain::DeliveryId::derive` makes it: the milliseconds of `moment`, then bytes of a
-- SHA-256 of the name, in which the bits of the version (8) and the variant (RFC 9562) are set. event-ingest calls
-- it.
CREATE FUNCTION derived_id(moment uuid, name bytea) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
    overlay(uuid_send(moment) PLACING substring(sha256(name) FOR 10) FROM 7),
    55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid;

-- The moment in a delivery's id, in milliseconds: the time of its event.
CREATE FUNCTION moment_of(delivery uuid) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN 'epoch'::timestamptz
    + ('x' || left(replace(delivery::text, '-', ''), 12))::bit(48)::bigint * interval '1 millisecond';

-- A delivery that is gone must not be created by recording an attempt at it. The statement of dispatchers that
-- records casts to this type whether it knows each delivery, so that it fails by the name of the constraint.
CREATE DOMAIN known_delivery AS boolean CONSTRAINT delivery_is_known CHECK (VALUE);

-- Keeps `unsuccessful_deliveries`. Whoever changes a delivery holds its row until the end of the transaction, so its
-- row there has one writer at a time.
CREATE FUNCTION keep_unsuccessful_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'succeeded' OR NEW.state = 'pending' AND NEW.next_attempt_at IS NULL THEN
        DELETE FROM unsuccessful_deliveries WHERE delivery_id = NEW.id;
    ELSE
        INSERT INTO unsuccessful_deliveries (delivery_id, webhook_id, state, next_attempt_at)
        VALUES (NEW.id, NEW.webhook_id, NEW.state, coalesce(NEW.next_attempt_at, NEW.created_at))
        ON CONFLICT (delivery_id) DO UPDATE SET state = excluded.state, next_attempt_at = excluded.next_attempt_at;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER unsuccessful_inserted AFTER INSERT ON deliveries FOR EACH ROW
    WHEN (NEW.state <> 'succeeded' AND (NEW.state <> 'pending' OR NEW.next_attempt_at IS NOT NULL))
    EXECUTE FUNCTION keep_unsuccessful_deliveries();
CREATE TRIGGER unsuccessful_updated AFTER UPDATE ON deliveries FOR EACH ROW
    WHEN (
        OLD.state <> 'succeeded' AND (OLD.state <> 'pending' OR OLD.next_attempt_at IS NOT NULL)
        OR NEW.state <> 'succeeded' AND (NEW.state <> 'pending' OR NEW.next_attempt_at IS NOT NULL)
    )
    EXECUTE FUNCTION keep_unsuccessful_deliveries();

-- A time as the API writes it.
CREATE FUNCTION rfc3339(moment timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- Adds the notices of a webhook that drops its first delivery in a failing period, or that ends one of which
-- administrators were notified, or should have been. Of one that began and ended in one batch there is no OLD time.
CREATE FUNCTION add_health_notices() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    webhook webhooks := (SELECT w FROM webhooks AS w WHERE id = NEW.webhook_id AND deleted_at IS NULL);
    is_recovered boolean := NEW.failing_since IS NULL AND (OLD.failing_notices > 0 OR NEW.previous_dropped > 0);
BEGIN
    IF webhook.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF is_recovered THEN
        INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
        VALUES (webhook.id, webhook.tenant_id, webhook.name, 'webhook.recovered', json_build_object(
            'failing_since', rfc3339(coalesce(OLD.failing_since, NEW.last_failure_at)),
            'succeeded_at', rfc3339(NEW.last_success_at),
            'dropped', NEW.previous_dropped,
            'first_dropped', CASE WHEN NEW.previous_dropped > 0 THEN NEW.first_dropped_id END
        ));
    END IF;
    IF NEW.dropped > 0 AND coalesce(OLD.dropped, 0) = 0 THEN
        INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details)
        VALUES (webhook.id, webhook.tenant_id, webhook.name, 'webhook.dropping', json_build_object(
            'failing_since', rfc3339(NEW.failing_since),
            'delivery_id', NEW.first_dropped_id,
            'last_failure', NEW.last_failure
        ));
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER health_inserted AFTER INSERT ON webhook_health FOR EACH ROW
    WHEN (NEW.dropped > 0 OR NEW.previous_dropped > 0) EXECUTE FUNCTION add_health_notices();
CREATE TRIGGER health_updated AFTER UPDATE ON webhook_health FOR EACH ROW
    WHEN (
        NEW.dropped > 0 AND OLD.dropped = 0
        OR NEW.failing_since IS NULL AND (OLD.failing_notices > 0 OR NEW.previous_dropped > 0)
    )
    EXECUTE FUNCTION add_health_notices();
