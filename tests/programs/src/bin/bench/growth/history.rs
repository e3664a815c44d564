//! Past deliveries with their attempts, for every webhook.

use crate::environment::Environment;

/// How many deliveries each past event had.
const FAN_OUT: u32 = 20;

/// Writes finished deliveries, half of them today and half on the two days before. Their ids are made as the service
/// makes them: milliseconds, then a hash.
pub(crate) async fn fill(environment: &Environment<'_>, rows: u32) {
    println!("  writing {rows} deliveries and their attempts …");
    environment.sql(&format!(
        "CREATE TEMPORARY TABLE past AS \
         SELECT n, (extract(epoch FROM CASE n % 2 \
                      WHEN 0 THEN date_trunc('day', now(), 'UTC') + (now() - date_trunc('day', now(), 'UTC')) * n / {rows} \
                      ELSE date_trunc('day', now(), 'UTC') - interval '1 second' - interval '47 hours' * n / {rows} END) * 1000)::bigint AS ms, \
                md5(n::text) AS hash, md5((n / {FAN_OUT})::text)::uuid AS event \
         FROM generate_series(1, {rows}) n; \
         CREATE TEMPORARY TABLE owners AS SELECT id AS webhook, tenant_id AS tenant, row_number() OVER () - 1 AS number FROM webhooks; \
         INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
         SELECT to_timestamp(ms / 1000.0), event, tenant, 'quote.closed', convert_to(repeat(hash, 18), 'UTF8') \
         FROM past JOIN owners ON number = n % (SELECT count(*) FROM owners) WHERE n % {FAN_OUT} = 0; \
         INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at) \
         SELECT (lpad(to_hex(ms), 12, '0') || '8' || left(hash, 3) || '8' || substr(hash, 4, 15))::uuid, webhook, event, \
                'quote.closed', CASE n % 100 WHEN 0 THEN 'dropped' ELSE 'succeeded' END, 1, to_timestamp(ms / 1000.0) \
         FROM past JOIN owners ON number = n % (SELECT count(*) FROM owners); \
         INSERT INTO attempts (delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, response_body) \
         SELECT (lpad(to_hex(ms), 12, '0') || '8' || left(hash, 3) || '8' || substr(hash, 4, 15))::uuid, 1, \
                'https://receiver.example/', to_timestamp(ms / 1000), to_timestamp(ms / 1000.0), 1000, 'success', 200, '' \
         FROM past"
    ))
    .await;
    environment.sql("VACUUM (ANALYZE) deliveries, attempts, events").await;
    let written = environment.count("SELECT count(*) FROM attempts").await;
    assert!(written >= i64::from(rows), "{written}");
}
