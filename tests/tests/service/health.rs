//! `failure_count` and `last_success_at` (specification, sections 2.3 and 3).
mod concurrent;
mod ends;
mod late;
mod locks;
mod notices;
mod sequences;
mod test_deliveries;

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    system::{Options, System},
    wait::until,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

/// The deadline for work that keeps the machine busy.
const LONG: Duration = Duration::from_secs(90);

/// A webhook's health as the API shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Health {
    failures: u64,
    succeeded_at: Option<OffsetDateTime>,
}

fn read(webhook: &serde_json::Value) -> Health {
    let moment = |text: &str| OffsetDateTime::parse(text, &Rfc3339).unwrap();
    let succeeded_at = match &webhook["last_success_at"] {
        serde_json::Value::Null => None,
        text => Some(moment(text.as_str().unwrap())),
    };
    Health { failures: webhook["failure_count"].as_u64().unwrap(), succeeded_at }
}

async fn health(api: &Api, webhook: &str) -> Health {
    read(&api.webhook(webhook).await)
}

/// One attempt of each delivery: the next one is too late to disturb the test.
fn once() -> Options {
    Options { schedule: "1h,2h", ..Options::default() }
}

/// Waits until a tenant has exactly this number of attempts. Health is written together with them.
async fn recorded_of(system: &System, tenant: Uuid, attempts: i64) {
    let theirs = format!(
        "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id \
         JOIN webhooks AS w ON w.id = d.webhook_id WHERE w.tenant_id = '{tenant}'"
    );
    until(&format!("{attempts} attempts are recorded"), LONG, || async { system.count(&theirs).await >= attempts })
        .await;
    assert_eq!(system.count(&theirs).await, attempts);
}

async fn publish(system: &System, tenant: Uuid, events: usize) {
    let events: Vec<_> = (0..events).map(|_| Event::now(EventType::QuoteClosed, tenant)).collect();
    system.upstream.publish(&events).await;
}
