//! Administrators at work during the storm. They repeat changes until done, but not resends and tests.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::DeliveryId;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    evidence::{Change, WebhookState},
    fixtures::{Fixtures, Role, Subscriber, now},
    journal::Journal,
};
use crate::api::{Answer, Api};

/// How long the API may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call is repeated.
const RETRY_PERIOD: Duration = Duration::from_secs(90);

#[derive(Default)]
pub(super) struct Record {
    changes: Mutex<Vec<(usize, Change)>>,
    resent: Mutex<HashSet<DeliveryId>>,
}

impl Record {
    pub(super) fn changes_of(&self, subscriber: usize) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.iter().filter(|(of, _)| *of == subscriber).map(|(_, change)| *change).collect()
    }

    pub(super) fn resent(&self) -> HashSet<DeliveryId> {
        self.resent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Clone)]
pub(super) struct Administrators {
    pub(super) fixtures: Arc<Fixtures>,
    pub(super) record: Arc<Record>,
    pub(super) journal: Arc<Journal>,
}

impl Administrators {
    /// Does their work, spread over the storm.
    pub(super) async fn work(self, began: Instant, length: Duration) {
        let at = |tenths: u32| began + length * tenths / 10;
        let pausing = async {
            for (tenths, to) in [
                (2, WebhookState::Paused),
                (4, WebhookState::Active),
                (6, WebhookState::Paused),
                (8, WebhookState::Active),
            ] {
                sleep_until(at(tenths)).await;
                self.change_all(Role::Paused, to).await;
            }
        };
        let leaving = async {
            sleep_until(at(5)).await;
            self.change_all(Role::LeftPaused, WebhookState::Paused).await;
        };
        let deleting = async {
            sleep_until(at(6)).await;
            self.change_all(Role::Deleted, WebhookState::Deleted).await;
        };
        let resending = async {
            for tenths in 2..10 {
                sleep_until(at(tenths)).await;
                self.resend_and_test().await;
            }
        };
        tokio::join!(pausing, leaving, deleting, resending);
    }

    pub(super) async fn change_all(&self, role: Role, to: WebhookState) {
        for (index, subscriber) in self.fixtures.with(role) {
            self.change(index, subscriber, to).await;
        }
    }

    async fn change(&self, index: usize, subscriber: &Subscriber, to: WebhookState) {
        let name = &subscriber.subscription.name;
        self.journal.say(format_args!("\"{name}\" becomes {to:?}"));
        let path = format!("/api/v1/webhooks/{}/", subscriber.subscription.webhook);
        let (method, body) = match to {
            WebhookState::Active => ("PATCH", json!({"is_active": true}).to_string()),
            WebhookState::Paused => ("PATCH", json!({"is_active": false}).to_string()),
            WebhookState::Deleted => ("DELETE", String::new()),
        };
        let asked = now();
        // 404: an earlier call deleted the webhook, and its answer got lost.
        let is_done = |status: u16| (200..300).contains(&status) || (to == WebhookState::Deleted && status == 404);
        let Some(answered) = until(&subscriber.admin, method, &path, &body, is_done).await else {
            self.journal.accuse(format_args!("the API did not make \"{name}\" {to:?} within {RETRY_PERIOD:?}"));
            return;
        };
        if to == WebhookState::Deleted && answered.status == 404 {
            self.journal.say(format_args!("\"{name}\" had been deleted by a call whose answer got lost"));
        }
        let change = Change { asked, answered: now(), to };
        self.record.changes.lock().unwrap_or_else(PoisonError::into_inner).push((index, change));
    }

    /// Resends up to three deliveries and sends one test delivery. A call without an answer may have taken effect.
    async fn resend_and_test(&self) {
        for (_, subscriber) in self.fixtures.with(Role::Resent) {
            let webhook = format!("/api/v1/webhooks/{}", subscriber.subscription.webhook);
            let list = format!("{webhook}/deliveries/?limit=3&state=succeeded");
            let page = until(&subscriber.admin, "GET", &list, "", |status| status == 200).await;
            let ids = page.map(|page| page.json()["data"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
            for id in ids.iter().filter_map(|delivery: &Value| delivery["id"].as_str()) {
                self.resent().insert(id.parse().expect("an id"));
                call(&subscriber.admin, "POST", &format!("{webhook}/deliveries/{id}/resend/"), "").await;
            }
            call(&subscriber.admin, "POST", &format!("{webhook}/test/"), "").await;
        }
    }

    fn resent(&self) -> std::sync::MutexGuard<'_, HashSet<DeliveryId>> {
        self.record.resent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn call(admin: &Api, method: &str, path: &str, body: &str) -> Option<Answer> {
    let json = [("content-type", "application/json")];
    let headers = if body.is_empty() { &[][..] } else { &json };
    timeout(ANSWER_TIMEOUT, admin.try_send(method, path, headers, body.to_owned())).await.ok()?.ok()
}

async fn until(admin: &Api, method: &str, path: &str, body: &str, is_done: impl Fn(u16) -> bool) -> Option<Answer> {
    let end = Instant::now() + RETRY_PERIOD;
    while Instant::now() < end {
        if let Some(answer) = call(admin, method, path, body).await.filter(|answer| is_done(answer.status)) {
            return Some(answer);
        }
        // Only spares an API that is starting.
        sleep(Duration::from_millis(200)).await;
    }
    None
}
