//! What administrators change and ask for. The large deletion, activation and recovery are parts of their own.

use std::iter::repeat_with;

use bytes::Bytes;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use super::{CALLS_PER_KIND, Call, Calls, reads::deliveries};
use crate::volume::Volume;

const WEBHOOK_PATH: &str = "/webhooks/{id}/";
/// The webhooks of a round, within the tenant's limit, and the rounds.
const WEBHOOKS_PER_ROUND: usize = 34;
const ROUNDS: usize = 3;

/// Makes all writes. Returns a recovery of the long history.
pub(super) async fn measure(calls: &mut Calls, volume: &Volume<'_>) -> String {
    for _ in 0..ROUNDS {
        create_and_delete(calls, volume).await;
    }
    let seeded = &volume.seeded;
    for webhook in [seeded.history, seeded.waiting, seeded.small] {
        let renamed = (0..CALLS_PER_KIND).map(|n| change(volume, webhook, json!({"name": format!("Renamed {n}")})));
        calls.repeat(("change", &webhook.to_string()), &volume.admin, renamed).await;
    }
    for webhook in [seeded.history, seeded.small] {
        let turned = (0..CALLS_PER_KIND).map(|n| change(volume, webhook, json!({"is_active": n % 2 == 1})));
        calls.repeat(("pause_and_activate", &webhook.to_string()), &volume.admin, turned).await;
        // The next calls need an active webhook.
        volume.environment.sql(&format!("UPDATE webhooks SET is_active = true WHERE id = '{webhook}'")).await;
        let test = repeat_with(|| post("/webhooks/{id}/test/", format!("{}test/", volume.path(webhook)), None));
        calls.repeat(("test", &webhook.to_string()), &volume.admin, test).await;
        resend(calls, volume, webhook).await;
    }
    count(calls, volume).await;
    let recovery = recover(calls, volume).await;
    cancel(calls, volume).await;
    recovery
}

async fn create_and_delete(calls: &mut Calls, volume: &Volume<'_>) {
    let new = json!({"name": "Measured", "url": "https://receiver.example/", "events": ["quote.closed"]});
    let create = repeat_with(|| Call {
        expected: &[201],
        ..post("/webhooks/", "/api/v1/webhooks/".to_owned(), Some(new.clone()))
    });
    let created = calls.repeat(("create", ""), &volume.admin, create.take(WEBHOOKS_PER_ROUND)).await;
    let delete = created.iter().filter_map(id).map(|id| {
        let path = format!("/api/v1/webhooks/{id}/");
        Call { method: "DELETE", template: WEBHOOK_PATH, path, body: None, expected: &[204] }
    });
    calls.repeat(("delete", ""), &volume.admin, delete).await;
}

async fn resend(calls: &mut Calls, volume: &Volume<'_>, webhook: Uuid) {
    let again = deliveries(volume, webhook).await.into_iter().map(|id| {
        let path = format!("{}deliveries/{id}/resend/", volume.path(webhook));
        post("/webhooks/{id}/deliveries/{delivery_id}/resend/", path, None)
    });
    calls.repeat(("resend", &webhook.to_string()), &volume.admin, again).await;
}

/// Cancels what waits for the small webhook. Only the call is measured.
async fn cancel(calls: &mut Calls, volume: &Volume<'_>) {
    let path = format!("{}cancel/", volume.path(volume.seeded.small));
    let cancel = repeat_with(|| post("/webhooks/{id}/cancel/", path.clone(), None));
    calls.repeat(("cancel", &path), &volume.admin, cancel).await;
}

/// Counts what a recovery would send.
async fn count(calls: &mut Calls, volume: &Volume<'_>) {
    for webhook in [volume.seeded.waiting, volume.seeded.history] {
        let path = format!("{}recover/", volume.path(webhook));
        let all = json!({"from": "2020-01-01T00:00:00Z", "states": ["dropped", "skipped"], "count_only": true});
        let count = repeat_with(|| Call {
            expected: &[200],
            ..post("/webhooks/{id}/recover/", path.clone(), Some(all.clone()))
        });
        calls.repeat(("count", &path), &volume.admin, count).await;
    }
}

/// Starts recoveries that have nothing to send, because only the call is measured.
async fn recover(calls: &mut Calls, volume: &Volume<'_>) -> String {
    let mut recovery = String::new();
    for webhook in [volume.seeded.small, volume.seeded.waiting, volume.seeded.history] {
        let since = OffsetDateTime::now_utc().format(&Rfc3339).expect("it can be written");
        let path = format!("{}recover/", volume.path(webhook));
        // The one before may still be running, which is found by the same statement.
        let recover = repeat_with(|| Call {
            expected: &[202, 409],
            ..post("/webhooks/{id}/recover/", path.clone(), Some(json!({"from": since})))
        });
        let answers = calls.repeat(("recover", &path), &volume.admin, recover).await;
        recovery = answers.first().and_then(id).unwrap_or_default();
    }
    recovery
}

fn change(volume: &Volume<'_>, webhook: Uuid, change: Value) -> Call {
    Call { method: "PATCH", template: WEBHOOK_PATH, path: volume.path(webhook), body: Some(change), expected: &[200] }
}

const fn post(template: &'static str, path: String, body: Option<Value>) -> Call {
    Call { method: "POST", template, path, body, expected: &[202] }
}

fn id(answer: &Bytes) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    Some(answer["id"].as_str()?.to_owned())
}
