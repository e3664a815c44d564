//! Past deliveries, written straight into the ledger.

use uuid::Uuid;

use crate::{api::Api, system::System};

/// A new tenant, its administrator, and its webhook with past deliveries as [`made`] writes them. No receiver is there.
pub async fn webhook(system: &System, count: usize, state: &str) -> (Uuid, Api, String) {
    let (tenant, api) = system.tenant().await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    made(system, tenant, &webhook, count, state).await;
    (tenant, api, webhook)
}

/// A webhook with past deliveries as [`made`] writes them, where no API runs. Its secret cannot be used.
pub async fn webhook_row(system: &System, tenant: Uuid, count: usize, state: &str) -> Uuid {
    let webhook = Uuid::new_v4();
    let columns = "id, tenant_id, name, url, events, secret_key_id, secret_sealed";
    let values = format!("'{webhook}', '{tenant}', 'A test', '', '{{}}', '', ''");
    system.sql(&format!("INSERT INTO webhooks ({columns}) VALUES ({values})")).await;
    made(system, tenant, &webhook.to_string(), count, state).await;
    webhook
}

/// Writes past deliveries of a webhook: dropped after seven attempts, with one event each, one second apart. The newest
/// is one second old. Their ids and bodies allow a resend.
pub async fn dropped(system: &System, tenant: Uuid, webhook: &str, count: usize) {
    made(system, tenant, webhook, count, "'dropped'").await;
}

/// Like `dropped`, with the state as an SQL expression of the number `i`. `i` is 1 for the newest delivery.
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

/// Holds the jobs of a webhook's deliveries, as a dispatcher does that finds no free attempt.
pub async fn held(system: &System, webhook: &str) {
    for statement in [
        format!("UPDATE deliveries SET attempts = 0, first_failed_at = NULL WHERE webhook_id = '{webhook}'"),
        format!(
            "INSERT INTO held_jobs (webhook_id, delivery_id, reason) SELECT webhook_id, id, 'slow' FROM deliveries WHERE webhook_id = '{webhook}'"
        ),
        format!("INSERT INTO held_webhooks VALUES ('{webhook}', 1, now(), now())"),
    ] {
        system.sql(&statement).await;
    }
}
