-- The numbers of deliveries of each webhook in $1 that wait, were dropped and were skipped, each up to $2, and its running recovery. One that waits for its
-- retry may also be held, and counts once. A webhook's rows are read along one index (README, a webhook's log).
-- Of the held ones twice as many are read: if more than half of these wait for their retry, that count is full anyway.
SELECT
    w.id AS webhook_id, least(retrying.count + held.count, $2) AS waiting,
    dropped.count AS dropped, skipped.count AS skipped, retrying.next_attempt_at,
    EXISTS (SELECT FROM cancellations AS t WHERE t.webhook_id = w.id) AS is_cancelling,
    EXISTS (SELECT FROM held_webhooks AS h WHERE h.webhook_id = w.id) AS is_queued,
    r.id AS recovery, coalesce(r.resent, 0) AS recovered
FROM unnest($1) AS w(id)
LEFT JOIN recoveries AS r ON r.webhook_id = w.id AND r.finished_at IS NULL
CROSS JOIN LATERAL (
    SELECT count(*), min(next_attempt_at) AS next_attempt_at FROM (
        SELECT next_attempt_at FROM unsuccessful_deliveries
        WHERE webhook_id = ANY (ARRAY[w.id]) AND state = 'retrying' ORDER BY webhook_id, delivery_id LIMIT $2
    ) AS u
) AS retrying
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT delivery_id FROM held_jobs WHERE webhook_id = w.id ORDER BY webhook_id, delivery_id LIMIT 2 * $2
    ) AS h
    WHERE NOT EXISTS (
        SELECT FROM unsuccessful_deliveries AS u
        WHERE u.delivery_id = h.delivery_id AND u.state = 'retrying' OFFSET 0
    )
) AS held
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM unsuccessful_deliveries
        WHERE webhook_id = ANY (ARRAY[w.id]) AND state = 'dropped' ORDER BY webhook_id, delivery_id LIMIT $2
    ) AS u
) AS dropped
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM unsuccessful_deliveries
        WHERE webhook_id = ANY (ARRAY[w.id]) AND state = 'skipped' ORDER BY webhook_id, delivery_id LIMIT $2
    ) AS u
) AS skipped
