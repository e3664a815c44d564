-- What attempts need, with the number of the job. `from_jobs.sql` goes on.
SELECT
    job.number,
    d.state, d.attempts, d.run_base, d.first_failed_at, d.next_attempt_at,
    -- `octet_length` does not read a body that is stored out of line.
    d.created_at, e.id, e.event_type, d.is_test,
    octet_length(e.body)::bigint, CASE WHEN octet_length(e.body) <= 24576 THEN e.body END, e.traceparent,
    w.id, w.tenant_id, w.url, w.is_active, w.deleted_at IS NOT NULL,
    w.secret_key_id, w.secret_sealed, w.headers_key_id, w.headers_sealed
