-- Records attempts, a row of `made` each. Returns the deliveries that expected them.
--
-- Deliveries are locked first, then health, then statistics, each in the order of keys. So dispatchers that record at
-- the same time wait for one another and never deadlock. The rows that many attempts share, of statistics and of health,
-- are best written last, to be locked for little more than a commit. So they stand before `logged`: of CTEs that nothing
-- reads, the server runs the last one first (without a promise).

-- The statement "inserts" deliveries, and the conflict updates them. That finds each row's partition and place by its
-- id alone, even with a plan made while the tables were empty. A delivery that is gone must not be created: its row
-- would have an empty event type, which fails the statement in the end.
--
-- A delivery that was cancelled during the attempt stays cancelled, unless the attempt succeeded. One that was resent
-- during it keeps waiting for its new run, which begins after this attempt.
, done AS (
    INSERT INTO deliveries AS d (
        id, webhook_id, event_id, event_type, attempts, state, run_base, first_failed_at, next_attempt_at
    )
    SELECT delivery_id, webhook_id, delivery_id, '', attempt, new_state, run, first_failed_at, next_attempt_at
    FROM made
    ON CONFLICT (id) DO UPDATE SET
        attempts = excluded.attempts,
        state = CASE WHEN excluded.run_base = d.run_base
                AND (d.state <> 'cancelled' OR excluded.state = 'succeeded')
            THEN excluded.state ELSE d.state END,
        run_base = CASE WHEN excluded.run_base = d.run_base THEN excluded.run_base ELSE excluded.attempts END,
        first_failed_at = CASE WHEN excluded.run_base = d.run_base
            THEN excluded.first_failed_at ELSE d.first_failed_at END,
        next_attempt_at = CASE WHEN excluded.run_base = d.run_base AND d.state <> 'cancelled'
            THEN excluded.next_attempt_at ELSE d.next_attempt_at END
    WHERE d.attempts = excluded.attempts - 1
    RETURNING d.id, d.event_type, d.is_test, d.state, d.next_attempt_at
)

-- Only attempts that the ledger expects are logged: the delivery's counter was one lower. Those of test deliveries count
-- neither in statistics nor in health, so a test causes no notice. While nothing is dropped, nobody looks for what is.
, counted AS MATERIALIZED (
    SELECT
        *,
        new_state = 'dropped' AND (delivery_id IN (SELECT id FROM done WHERE state = 'dropped')) IS TRUE AS is_dropped,
        (delivery_id IN (SELECT id FROM done WHERE is_test)) IS TRUE AS is_test
    FROM made WHERE (delivery_id IN (SELECT id FROM done)) IS TRUE
)

-- What administrators see by hour. Counters stop at the end of their type: beyond it, the statement would fail for all.
, tallied AS (
    INSERT INTO webhook_stats AS s (webhook_id, hour, outcome, bucket, attempts, dropped)
    SELECT
        webhook_id, date_bin('1 hour', finished_at, '2000-01-01Z') AS hour, outcome, bucket,
        count(*), count(*) FILTER (WHERE is_dropped)
    FROM counted WHERE NOT is_test GROUP BY webhook_id, hour, outcome, bucket ORDER BY webhook_id, hour, outcome, bucket
    ON CONFLICT (webhook_id, hour, outcome, bucket) DO UPDATE SET
        attempts = least(s.attempts::bigint + excluded.attempts, 2147483647),
        dropped = least(s.dropped::bigint + excluded.dropped, 2147483647)
)

-- Health (specification, section 2.3) is "inserted" in the same way, in the order of recording, and within a batch in the
-- order in which attempts ended. A failing period begins with the first failure since the last success. It is over when a
-- success is recorded and no failure is known after the latest one: the notices to administrators hold until then, also
-- if a late success moves its begin. A late success begins none. Triggers make notices of its first drop and of its end.
, ended AS (
    SELECT *, max(finished_at) FILTER (WHERE outcome = 'success') OVER (PARTITION BY webhook_id) AS success_at
    FROM counted WHERE NOT is_test
)
, health AS (
    SELECT
        webhook_id, success_at,
        count(*) FILTER (WHERE success_at IS NULL OR finished_at > success_at) AS failures,
        min(finished_at) FILTER (WHERE success_at IS NULL OR finished_at > success_at) AS failing_since,
        max(finished_at) FILTER (WHERE outcome <> 'success') AS failure_at,
        (array_agg(error ORDER BY finished_at DESC) FILTER (WHERE outcome <> 'success'))[1] AS failure,
        count(*) FILTER (WHERE is_dropped) AS drops,
        (array_agg(delivery_id ORDER BY delivery_id) FILTER (WHERE is_dropped))[1] AS first_dropped_id
    FROM ended GROUP BY webhook_id, success_at ORDER BY webhook_id
)
, shown AS (
    INSERT INTO webhook_health AS h (
        webhook_id, last_success_at, failure_count, failing_since, last_failure_at, last_failure, dropped, previous_dropped,
        first_dropped_id
    )
    SELECT
        webhook_id, success_at, failures, failing_since, failure_at, failure,
        CASE WHEN success_at IS NULL OR failures > 0 THEN drops ELSE 0 END,
        CASE WHEN success_at IS NULL OR failures > 0 THEN 0 ELSE drops END,
        first_dropped_id
    FROM health
    ON CONFLICT (webhook_id) DO UPDATE SET
        last_success_at = greatest(h.last_success_at, excluded.last_success_at),
        failure_count = CASE WHEN excluded.last_success_at IS NULL
            THEN least(h.failure_count::bigint + excluded.failure_count, 2147483647) ELSE excluded.failure_count END,
        (failing_since, failing_notices, dropped, previous_dropped) = (
            SELECT
                CASE WHEN is_over THEN NULL
                    WHEN excluded.last_success_at IS NULL THEN coalesce(h.failing_since, excluded.failing_since)
                    ELSE coalesce(excluded.failing_since, h.last_failure_at) END,
                CASE WHEN is_over THEN 0 ELSE h.failing_notices END,
                CASE WHEN is_over THEN 0 ELSE lost END,
                CASE WHEN is_over THEN lost ELSE h.previous_dropped END
            FROM (SELECT
                excluded.failure_count = 0 AND greatest(h.last_success_at, excluded.last_success_at)
                    >= coalesce(greatest(h.last_failure_at, excluded.last_failure_at), '-infinity') AS is_over,
                least(h.dropped::bigint + excluded.dropped + excluded.previous_dropped, 2147483647) AS lost
            ) AS period
        ),
        last_failure_at = greatest(h.last_failure_at, excluded.last_failure_at),
        last_failure = CASE WHEN excluded.last_failure_at >= coalesce(h.last_failure_at, '-infinity')
            THEN excluded.last_failure ELSE h.last_failure END,
        first_dropped_id = CASE WHEN h.dropped = 0
            THEN excluded.first_dropped_id ELSE least(h.first_dropped_id, excluded.first_dropped_id) END
)

, logged AS (
    INSERT INTO attempts
        (delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, response_body, error)
    SELECT delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, response_body, error
    FROM counted
)

-- Fails with the constraint `delivery_is_known` if a delivery is gone.
SELECT id, state, next_attempt_at FROM done WHERE (event_type <> '')::known_delivery
