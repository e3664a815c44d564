//! Deliveries of the past, put straight into the ledger.

use uuid::Uuid;

use crate::system::System;

/// Deliveries of a webhook that were dropped after seven attempts, one event each, a second apart, the last one a second
/// ago. Their ids and bodies are such that they can be sent again.
pub async fn dropped(system: &System, tenant: Uuid, webhook: &str, count: usize) {
    made(system, tenant, webhook, count, "'dropped'").await;
}

/// The same in a state that is an SQL expression of the number `i`, from 1 (the newest).
pub async fn made(system: &System, tenant: Uuid, webhook: &str, count: usize, state: &str) {
    system
        .sql(&format!(
            "WITH past AS MATERIALIZED ( \
                SELECT i, gen_random_uuid() AS event, \
                       date_trunc('milliseconds', now()) - i * interval '1 second' AS at FROM generate_series(1, {count}) AS i \
             ), event AS ( \
                INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                SELECT at, event, '{tenant}', 'quote.closed', convert_to('{{\"number\":' || i || '}}', 'UTF8') FROM past \
             ) \
             INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at, first_failed_at) \
             SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || \
                     '8' || substr(md5(event::text), 1, 3) || '8' || substr(md5(event::text), 4, 15))::uuid, \
                    '{webhook}', event, 'quote.closed', {state}, 7, at, at FROM past"
        ))
        .await;
}
