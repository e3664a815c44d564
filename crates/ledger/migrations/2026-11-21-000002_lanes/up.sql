-- Webhooks that may have jobs in the queue of the slow lane. A dispatcher stamps a webhook before it moves a job there and
-- when it takes one from there; nobody may conclude from an empty main queue that such a webhook's jobs are lost.
CREATE TABLE slow_webhooks (
    webhook_id uuid PRIMARY KEY,
    stamped_at timestamptz NOT NULL
);

-- Deliveries whose job may crash dispatchers: handed out several times without an end, and begun one at a time. A row is
-- there while such a job is begun, and stays when its dispatcher dies with it. `parked_as` is set when the job was
-- moved to the queue of dead jobs, where it waits for an operator: the delivery has no job anywhere else.
CREATE TABLE suspect_jobs (
    delivery_id uuid PRIMARY KEY,
    tries       smallint NOT NULL,
    marked_at   timestamptz NOT NULL,
    parked_as   text
);
