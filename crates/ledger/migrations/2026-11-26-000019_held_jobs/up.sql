-- Jobs are held for more than one reason, and no job lies in the queue of the slow lane for long.
DROP TABLE slow_webhooks;
-- `handed_out`: how often the broker had handed it out (it counts a new message from 0).
-- `paused`: until the webhook is active again; `slow`: its receiver is slower than its deliveries come.
ALTER TABLE held_jobs
    ADD COLUMN reason text NOT NULL DEFAULT 'paused' CHECK (reason IN ('paused', 'slow')),
    ADD COLUMN handed_out smallint NOT NULL DEFAULT 0,
    ADD COLUMN held_at timestamptz NOT NULL DEFAULT now();

-- Webhooks with held jobs: when the next of these are published, and how many at a time. A webhook that is paused has a
-- row again once it is active.
CREATE TABLE held_webhooks (
    webhook_id uuid PRIMARY KEY,
    batch      integer NOT NULL CHECK (batch > 0),
    woken_at   timestamptz NOT NULL,
    wake_at    timestamptz NOT NULL
);
CREATE INDEX held_webhooks_by_time ON held_webhooks (wake_at);
INSERT INTO held_webhooks (webhook_id, batch, woken_at, wake_at)
SELECT webhook_id, 1000000, now(), now() FROM webhook_tasks WHERE task = 'activate';
DELETE FROM webhook_tasks WHERE task = 'activate';
ALTER TABLE webhook_tasks DROP CONSTRAINT webhook_tasks_task_check, ADD CHECK (task = 'cancel');
