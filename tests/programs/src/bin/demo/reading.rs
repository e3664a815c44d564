//! Shows what an administrator and the business application read: the health of each webhook, and notices.

use std::cell::RefCell;

use end_to_end::{
    system::System,
    wait::{SOON, until},
};
use serde_json::Value;

use crate::{fixtures::Fixtures, page::say};

/// Reads the list of webhooks until it has the expected health, and shows it.
pub(crate) async fn show_health(system: &System, fixtures: &Fixtures) {
    let attempts = system.settings().retry.schedule.steps().len() + 1;
    let expected = [(0, true), (0, true), (attempts, false)];
    let list = RefCell::new(Value::Null);
    let entry = |id: &str| {
        let list = list.borrow();
        let entry = list["data"].as_array().into_iter().flatten().find(|entry| entry["id"] == id);
        entry.cloned().unwrap_or_default()
    };
    until("the webhooks have the health of their attempts", SOON, || async {
        let read = fixtures.admin.get("/api/v1/webhooks/").await.json();
        *list.borrow_mut() = read;
        fixtures.webhooks().iter().zip(expected).all(|(webhook, (failures, has_succeeded))| {
            let entry = entry(&webhook.id);
            entry["failure_count"] == failures && entry["last_success_at"].is_string() == has_succeeded
        })
    })
    .await;
    say!("  {:<13}  {:<13}  last_success_at", "webhook", "failure_count");
    let text = list.borrow().to_string();
    for webhook in fixtures.webhooks() {
        let entry = entry(&webhook.id);
        let at = entry["last_success_at"].as_str().unwrap_or("null (never)");
        say!("  {:<13}  {:<13}  {at}", webhook.path, entry["failure_count"].to_string());
        assert!(!text.contains(&webhook.secret), "only the answer to a registration shows a secret");
    }
}

/// Takes notices until those of this demonstration have come: three registrations and a drop.
pub(crate) async fn show_notices(system: &System) {
    let (queue, taken) = (system.names.notices(), RefCell::new(Vec::<Value>::new()));
    until("the notices have come", SOON, || async {
        while let Some(message) = system.upstream.take(&queue).await {
            taken.borrow_mut().push(serde_json::from_slice(&message.data).unwrap_or_default());
        }
        let count = |of: &str| taken.borrow().iter().filter(|notice| notice["type"] == of).count();
        (count("webhook.created"), count("webhook.dropping")) == (3, 1)
    })
    .await;
    for notice in taken.take() {
        let text = |member: &str| notice[member].as_str().unwrap_or("?").to_owned();
        say!("  {:<16}  {}", text("type"), text("summary"));
    }
}
