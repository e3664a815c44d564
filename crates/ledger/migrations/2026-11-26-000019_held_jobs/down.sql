ALTER TABLE webhook_tasks DROP CONSTRAINT webhook_tasks_task_check, ADD CHECK (task IN ('cancel', 'activate'));
INSERT INTO webhook_tasks (webhook_id, task) SELECT webhook_id, 'activate' FROM held_webhooks;
DROP TABLE held_webhooks;
ALTER TABLE held_jobs DROP COLUMN reason, DROP COLUMN held_at, DROP COLUMN handed_out;
CREATE TABLE slow_webhooks (
    webhook_id uuid PRIMARY KEY,
    stamped_at timestamptz NOT NULL
);
