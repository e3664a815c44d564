-- Which memory of the broker's the ledger believes in. A durable queue is named by `id`; when the broker answers and has
-- no such queue, it has lost its disk, and with it every job. A rebuild declares the queue of `rebuilding` first, walks
-- all deliveries up to `reached`, and makes that queue the one to believe in.
CREATE TABLE broker_generation (
    is_only          boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id               uuid,
    verified_at      timestamptz,
    rebuilding       uuid,
    rebuild_began_at timestamptz,
    rebuild_reached  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
);

INSERT INTO broker_generation DEFAULT VALUES;

-- Overdue jobs that were enqueued again: the same attempt again only after an hour, then two, then four.
CREATE TABLE requeued_jobs (
    delivery_id uuid PRIMARY KEY,
    attempt     smallint NOT NULL,
    requeued_at timestamptz NOT NULL,
    times       smallint NOT NULL DEFAULT 1
);

CREATE INDEX requeued_jobs_by_time ON requeued_jobs (requeued_at);

