//! Shows the health of each webhook, as an administrator reads it.

use serde_json::Value;

use crate::{
    failure::{Checked, Failure, soon},
    fixtures::{Fixtures, Webhook},
    page::say,
};

#[derive(Debug, PartialEq)]
struct Health {
    path: &'static str,
    failure_count: Option<i64>,
    /// Whether `last_success_at` is a time.
    has_succeeded: bool,
}

/// Reads the list until it has the expected health, and shows it. `failed` is the number of attempts of the dropped
/// delivery.
pub(crate) async fn show(fixtures: &Fixtures, failed: usize) -> Checked {
    let expect = |webhook: &Webhook, failure_count, has_succeeded| Health {
        path: webhook.path,
        failure_count: Some(failure_count),
        has_succeeded,
    };
    let failed = i64::try_from(failed).unwrap_or(i64::MAX);
    let expected = vec![
        expect(&fixtures.always_ok, 0, true),
        expect(&fixtures.fails_twice, 0, true),
        expect(&fixtures.always_fails, failed, false),
    ];
    soon("the health of the webhooks", &expected, || async {
        let list = list(fixtures).await;
        fixtures.webhooks().into_iter().map(|webhook| health(webhook, &list)).collect()
    })
    .await?;
    let list = list(fixtures).await;
    say!("  {:<13}  {:<13}  last_success_at", "webhook", "failure_count");
    for webhook in fixtures.webhooks() {
        let entry = entry(webhook, &list);
        let at = entry["last_success_at"].as_str().unwrap_or("null (never)");
        say!("  {:<13}  {:<13}  {at}", webhook.path, entry["failure_count"].to_string());
    }
    secrets_stay_hidden(fixtures, &list)
}

async fn list(fixtures: &Fixtures) -> Value {
    fixtures.admin.get("/api/v1/webhooks/").await.json()
}

fn entry<'l>(webhook: &Webhook, list: &'l Value) -> &'l Value {
    let mut entries = list["data"].as_array().into_iter().flatten();
    entries.find(|entry| entry["id"] == webhook.id.as_str()).unwrap_or(&Value::Null)
}

fn health(webhook: &Webhook, list: &Value) -> Health {
    let entry = entry(webhook, list);
    Health {
        path: webhook.path,
        failure_count: entry["failure_count"].as_i64(),
        has_succeeded: entry["last_success_at"].is_string(),
    }
}

/// Checks that the list shows no secret. Only the answer to a registration shows one.
fn secrets_stay_hidden(fixtures: &Fixtures, list: &Value) -> Checked {
    let text = list.to_string();
    match fixtures.webhooks().iter().find(|webhook| text.contains(&webhook.secret)) {
        Some(webhook) => Err(Failure::new("GET /api/v1/webhooks/", "no secret", format!("that of {}", webhook.path))),
        None => Ok(()),
    }
}
