-- Health apart from what administrators write: a narrow row, so that each batch of outcomes rewrites little, and the rows
-- of `webhooks`, which every event and every attempt read, stay as they are. A webhook has a row from its first outcome on.
-- No foreign key: a webhook whose row somebody removed by hand must not stop the outcomes that are recorded beside its own.
CREATE TABLE webhook_health (
    webhook_id      uuid PRIMARY KEY,
    last_success_at timestamptz,
    failure_count   integer NOT NULL,
    recent_failures timestamptz[] -- when the latest failures since the last success ended; null if there are none
) WITH (fillfactor = 50); -- updated in place (HOT)

-- Nobody records an outcome between the copy and the commit.
LOCK TABLE webhooks IN SHARE ROW EXCLUSIVE MODE;

INSERT INTO webhook_health
SELECT id, last_success_at, failure_count, nullif(recent_failures, '{}') FROM webhooks
WHERE last_success_at IS NOT NULL OR failure_count > 0;

ALTER TABLE webhooks RESET (fillfactor);

-- The columns of these names in `webhooks` stay for one version more: a dispatcher of the version before writes them until
-- it is replaced. Nothing reads them.
