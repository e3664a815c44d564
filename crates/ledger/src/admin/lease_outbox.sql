-- Leases entries of the outbox whose lease has ended. An entry whose delivery is gone (retention deleted it) has no
-- job. It is only deleted.
, due AS MATERIALIZED (
    SELECT delivery_id FROM promised_jobs
    WHERE leased_until <= (SELECT at FROM lease)
    ORDER BY leased_until, delivery_id
    LIMIT (SELECT most FROM lease)
    FOR UPDATE SKIP LOCKED
)
, leased AS (
    UPDATE promised_jobs AS p SET leased_until = (SELECT until FROM lease)
    FROM due WHERE p.delivery_id = due.delivery_id
    RETURNING p.delivery_id
)
SELECT leased.delivery_id, d.attempts
FROM leased
LEFT JOIN LATERAL (SELECT attempts FROM deliveries WHERE id = leased.delivery_id) AS d ON true
