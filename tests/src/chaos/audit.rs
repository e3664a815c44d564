//! The auditor: lists in, findings out. It knows the specification and the ledger's rules, and does no IO.

mod findings;
mod health;
mod ledger;
mod posts;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::HashMap;

use domain::{DeliveryId, EventId, Timestamp, WebhookId};
use uuid::Uuid;

pub use findings::{Audit, Counts, Finding, Kind};

use super::evidence::{Delivery, Evidence, Post, Published, Subscription};

/// Reconciles the lists.
#[must_use]
pub fn audit(evidence: &Evidence) -> Audit {
    let mut audit = Audit::default();
    let case = Case::new(evidence);
    wanted::check(&case, &mut audit);
    ledger::check(&case, &mut audit);
    posts::check(&case, &mut audit);
    health::check(&case, &mut audit);
    for left in &evidence.left {
        audit.found(Kind::Left, left.clone());
    }
    for misconduct in &evidence.misconduct {
        audit.found(Kind::Misconduct, misconduct.clone());
    }
    if evidence.trapped > 0 {
        audit.found(Kind::Redirected, format!("{} requests followed a redirect", evidence.trapped));
    }
    audit
}

/// The lists, indexed.
struct Case<'e> {
    evidence: &'e Evidence,
    subscriptions: HashMap<WebhookId, &'e Subscription>,
    published: HashMap<Uuid, &'e Published>,
    deliveries: HashMap<DeliveryId, &'e Delivery>,
    /// By the id that the request carries, if it is a valid one.
    posts: HashMap<DeliveryId, Vec<&'e Post>>,
}

impl<'e> Case<'e> {
    fn new(evidence: &'e Evidence) -> Self {
        let mut posts: HashMap<_, Vec<_>> = HashMap::new();
        for post in &evidence.posts {
            if let Some(id) = id_of(post) {
                posts.entry(id).or_default().push(post);
            }
        }
        Self {
            evidence,
            subscriptions: evidence.subscriptions.iter().map(|one| (one.webhook, one)).collect(),
            published: evidence.published.iter().map(|one| (one.event.id, one)).collect(),
            deliveries: evidence.deliveries.iter().map(|one| (one.id, one)).collect(),
            posts,
        }
    }

    fn name(&self, webhook: WebhookId) -> &str {
        self.subscriptions.get(&webhook).map_or("an unknown webhook", |one| &one.name)
    }

    /// Whether a delivery is a test or was resent, so that it may have more than one run.
    fn is_meddled(&self, delivery: &Delivery) -> bool {
        delivery.is_test || delivery.run_base > 0 || self.evidence.resent.contains(&delivery.id)
    }
}

fn id_of(post: &Post) -> Option<DeliveryId> {
    post.received.header("x-service-webhook-id")?.parse().ok()
}

/// The only id that a delivery of the event to the webhook may have.
fn only_id(webhook: WebhookId, published: &Published) -> Option<DeliveryId> {
    let timestamp: Timestamp = published.event.timestamp.parse().ok()?;
    let event = &published.event;
    Some(DeliveryId::derive(webhook, EventId::from(event.id), event.event_type, timestamp))
}
