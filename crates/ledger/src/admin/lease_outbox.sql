-- Leases entries of the outbox that nobody leases. An entry whose delivery is gone (retention deleted it) has no
-- job. It is only deleted.
, due AS MATERIALIZED (
    SELECT delivery_id FROM promised_jobs
    WHERE leased_until <= now()
    ORDER BY leased_until, delivery_id
    LIMIT (SELECT most FROM lease)
    FOR UPDATE SKIP LOCKED
)
, leased AS (
    UPDATE promised_jobs AS p SET leased_until = now() + (SELECT seconds FROM lease) * interval '1 second'
    FROM due WHERE p.delivery_id = due.delivery_id
    RETURNING p.delivery_id, p.leased_until
)
SELECT leased.delivery_id, leased.leased_until, d.attempts
FROM leased
LEFT JOIN LATERAL (SELECT attempts FROM deliveries WHERE id = leased.delivery_id) AS d ON true
