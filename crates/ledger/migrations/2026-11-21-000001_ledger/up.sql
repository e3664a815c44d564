-- The ledger. Partitions by day are made by the program; the default ones take what is odd.

CREATE TABLE webhooks (
    id              uuid PRIMARY KEY,
    tenant_id       uuid NOT NULL,
    name            text NOT NULL,
    url             text NOT NULL,
    events          text[] NOT NULL,
    is_active       boolean NOT NULL DEFAULT true,
    secret_key_id   text NOT NULL,
    secret_sealed   bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    last_success_at timestamptz,
    failure_count   integer NOT NULL DEFAULT 0,
    deleted_at      timestamptz -- its history stays readable until retention takes it
) WITH (fillfactor = 70); -- health is updated in place (HOT)

CREATE INDEX webhooks_by_tenant ON webhooks (tenant_id, id) WHERE deleted_at IS NULL;

-- The exact body, once per event, for the events that at least one webhook wants.
-- occurred_at is the event's timestamp cut to milliseconds, as in the delivery ids.
CREATE TABLE events (
    occurred_at timestamptz NOT NULL,
    id          uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    event_type  text NOT NULL,
    body        bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (occurred_at, id, tenant_id) -- two tenants may be told of one event, each with its own data
) PARTITION BY RANGE (occurred_at);

CREATE TABLE events_default PARTITION OF events DEFAULT;

-- A delivery's id begins with the milliseconds of occurred_at, so ranges of ids are ranges of days.
CREATE TABLE deliveries (
    id              uuid PRIMARY KEY,
    webhook_id      uuid NOT NULL,
    event_id        uuid NOT NULL,
    event_type      text NOT NULL,
    is_test         boolean NOT NULL DEFAULT false,
    state           text NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'retrying', 'succeeded', 'dropped', 'cancelled')),
    attempts        smallint NOT NULL DEFAULT 0,
    run_base        smallint NOT NULL DEFAULT 0, -- attempts made before this run of the schedule (a resend begins one)
    created_at      timestamptz NOT NULL DEFAULT now(),
    first_failed_at timestamptz,
    next_attempt_at timestamptz
) PARTITION BY RANGE (id);

CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, id);

CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT WITH (fillfactor = 80);

-- One row per POST.
CREATE TABLE attempts (
    delivery_id uuid NOT NULL,
    attempt     smallint NOT NULL,
    url         text NOT NULL,
    signature   text NOT NULL,
    started_at  timestamptz NOT NULL,
    duration_us bigint NOT NULL,
    outcome     text NOT NULL,
    status      smallint,
    answer_head bytea NOT NULL,
    error       text,
    PRIMARY KEY (delivery_id, attempt)
) PARTITION BY RANGE (delivery_id);

CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;

-- Jobs that are promised to the queue and not yet confirmed there: a resend, a test, a recovery, an activation. Whoever
-- promised publishes at once; what is still here when the lease ends is published by any api-service.
CREATE TABLE promised_jobs (
    delivery_id  uuid PRIMARY KEY,
    leased_until timestamptz NOT NULL,
    is_shared    boolean NOT NULL DEFAULT false -- more than one request relies on it: it cannot be taken back
);

-- Jobs that came while their webhook was inactive; its activation promises them anew.
CREATE TABLE held_jobs (
    webhook_id  uuid NOT NULL,
    delivery_id uuid NOT NULL,
    PRIMARY KEY (webhook_id, delivery_id)
);

-- Recoveries: every dropped delivery of a webhook since a time, sent again bit by bit.
CREATE TABLE recoveries (
    id           uuid PRIMARY KEY,
    webhook_id   uuid NOT NULL,
    since        timestamptz NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz,
    resent       integer NOT NULL DEFAULT 0,
    reached      uuid NOT NULL, -- the last delivery that was looked at
    leased_until timestamptz NOT NULL DEFAULT '-infinity'
);

-- One at a time per webhook: asking twice does not double the work.
CREATE UNIQUE INDEX recoveries_running ON recoveries (webhook_id) WHERE finished_at IS NULL;

-- Written by the business application or by `webhookctl session create`; holds no session id, only its hash.
CREATE TABLE admin_sessions (
    id_sha256  bytea PRIMARY KEY CHECK (length(id_sha256) = 32),
    tenant_id  uuid NOT NULL,
    user_id    text NOT NULL,
    role       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
