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
-- during it keeps waiting for its new run, which begins after this attempt. If a resend is taken back while its first
-- attempt is under way, the attempt is recorded as one of the resend's run.
, done AS (
    INSERT INTO deliveries AS d (
        id, webhook_id, event_id, event_type, attempts, state, run_base, first_failed_at, next_attempt_at
    )
    SELECT delivery_id, webhook_id, delivery_id, '', attempt, new_state, run, first_failed_at, next_attempt_at
    FROM made
    ON CONFLICT (id) DO UPDATE SET
        attempts = excluded.attempts,
        state = CASE WHEN excluded.run_base >= d.run_base
                AND (d.state <> 'cancelled' OR excluded.state = 'succeeded')
            THEN excluded.state ELSE d.state END,
        run_base = CASE WHEN excluded.run_base >= d.run_base THEN excluded.run_base ELSE excluded.attempts END,
        first_failed_at = CASE WHEN excluded.run_base >= d.run_base
            THEN excluded.first_failed_at ELSE d.first_failed_at END,
        next_attempt_at = CASE WHEN excluded.run_base >= d.run_base AND d.state <> 'cancelled'
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

-- Health (specification, section 2.3) is "inserted" in the same way. A failure older than the last success does not
-- count. A success older than the last one changes nothing. A success recorded after younger failures leaves those
-- standing: the times of the latest 64 (or of a first batch) are kept for that. A failing period begins with the first
-- failure since the last success. Triggers make notices of its first drop and of its end.
, health AS (
    SELECT
        webhook_id,
        max(finished_at) FILTER (WHERE outcome = 'success') AS success_at,
        array_agg(finished_at) FILTER (WHERE outcome <> 'success') AS failures,
        max(finished_at) FILTER (WHERE outcome <> 'success') AS failure_at,
        (array_agg(error ORDER BY finished_at DESC) FILTER (WHERE outcome <> 'success'))[1] AS failure,
        array_agg(finished_at) FILTER (WHERE is_dropped) AS drops,
        (array_agg(delivery_id ORDER BY delivery_id) FILTER (WHERE is_dropped))[1] AS first_dropped
    FROM counted WHERE NOT is_test GROUP BY webhook_id ORDER BY webhook_id
)
, shown AS (
    INSERT INTO webhook_health AS h (
        webhook_id, last_success_at, failure_count, recent_failures, failing_since, last_failure_at, last_failure,
        dropped, last_dropped, first_dropped
    )
    SELECT
        webhook_id, success_at, coalesce(cardinality(since), 0), since, failing_since, failure_at, failure,
        dropped, coalesce(cardinality(drops), 0) - dropped, first_dropped
    FROM health
    CROSS JOIN LATERAL (
        SELECT
            array_agg(failed) FILTER (WHERE failed > coalesce(success_at, '-infinity')) AS since,
            min(failed) FILTER (WHERE failed > coalesce(success_at, '-infinity')) AS failing_since,
            (count(*) FILTER (WHERE lost > coalesce(success_at, '-infinity')))::integer AS dropped
        FROM unnest(failures, drops) AS later(failed, lost)
    ) AS later
    ON CONFLICT (webhook_id) DO UPDATE SET
        last_success_at = greatest(h.last_success_at, excluded.last_success_at),
        (failure_count, recent_failures, failing_since) = (
            SELECT
                CASE WHEN excluded.last_success_at > coalesce(h.last_success_at, '-infinity') THEN count(*)
                    ELSE least(h.failure_count + count(*) FILTER (WHERE failure.is_new), 2147483647) END,
                (array_agg(failure.at ORDER BY failure.at DESC))[1:64],
                CASE WHEN excluded.last_success_at > coalesce(h.last_success_at, '-infinity') THEN min(failure.at)
                    ELSE least(h.failing_since, min(failure.at)) END
            FROM (
                SELECT unnest(excluded.recent_failures), true
                UNION ALL
                SELECT unnest(h.recent_failures), false
            ) AS failure(at, is_new)
            WHERE failure.at > coalesce(greatest(h.last_success_at, excluded.last_success_at), '-infinity')
        ),
        last_failure_at = greatest(h.last_failure_at, excluded.last_failure_at),
        last_failure = CASE WHEN excluded.last_failure_at >= coalesce(h.last_failure_at, '-infinity')
            THEN excluded.last_failure ELSE h.last_failure END,
        failing_notices = CASE WHEN excluded.last_success_at > coalesce(h.last_success_at, '-infinity')
            THEN 0 ELSE h.failing_notices END,
        dropped = CASE WHEN excluded.last_success_at > coalesce(h.last_success_at, '-infinity')
            THEN excluded.dropped ELSE least(h.dropped::bigint + excluded.dropped, 2147483647) END,
        last_dropped = CASE WHEN excluded.last_success_at > coalesce(h.last_success_at, '-infinity')
            THEN least(h.dropped::bigint + excluded.last_dropped, 2147483647) ELSE h.last_dropped END,
        first_dropped = CASE WHEN h.dropped = 0
            THEN excluded.first_dropped ELSE least(h.first_dropped, excluded.first_dropped) END
)

, logged AS (
    INSERT INTO attempts
        (delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, answer_head, error)
    SELECT delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, answer_head, error
    FROM counted
)

-- Fails with the constraint `delivery_is_known` if a delivery is gone.
SELECT id, state, next_attempt_at FROM done WHERE (event_type <> '')::known_delivery
