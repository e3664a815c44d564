-- What a request asked for and what is done in steps afterwards, however often the process that does it dies:
-- `cancel`: the waiting deliveries of a deleted webhook are cancelled, in the order of their ids;
-- `activate`: the jobs that were held while the webhook was paused are published again.
CREATE TABLE webhook_tasks (
    webhook_id   uuid NOT NULL,
    task         text NOT NULL CHECK (task IN ('cancel', 'activate')),
    cursor       uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    leased_until timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (webhook_id, task)
);
