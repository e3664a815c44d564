-- Leases entries of the outbox that nobody leases.
, due AS MATERIALIZED (
    SELECT delivery_id FROM promised_jobs
    WHERE leased_until <= now()
    ORDER BY leased_until, delivery_id
    LIMIT (SELECT most FROM lease)
    FOR UPDATE SKIP LOCKED
)
UPDATE promised_jobs AS p SET leased_until = now() + (SELECT seconds FROM lease) * interval '1 second'
FROM due WHERE p.delivery_id = due.delivery_id
RETURNING p.delivery_id, p.leased_until, p.delivery_count
