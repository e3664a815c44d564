//! Checks the ledger against what was published: which deliveries must, may and must not be there.

use std::{collections::HashSet, time::Duration};

use domain::DeliveryState;
use time::OffsetDateTime;

use super::{Audit, Case, Kind, only_id};
use crate::chaos::evidence::{Published, Subscription, WebhookState};

/// How long before an event is stored its subscribers may have been read. Ingest may be frozen, or wait for the
/// database, between the two.
const MAX_READ_AHEAD: Duration = Duration::from_secs(60);
/// How far the clocks of two processes may differ.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Yes,
    /// The webhook was paused.
    Skipped,
    No,
    Perhaps,
}

pub(super) fn check(case: &Case<'_>, audit: &mut Audit) {
    let mut justified = HashSet::new();
    for published in &case.evidence.published {
        audit.counts.published += 1;
        audit.counts.published_again += usize::from(published.times > 1);
        let stored = case.evidence.events.get(&published.event.id);
        let must_be_stored =
            case.evidence.subscriptions.iter().any(|one| one.changes.is_empty() && suits(one, published));
        if stored.is_none() && must_be_stored {
            audit.found(Kind::LostEvent, format!("event {}", published.event.id));
        }
        for subscription in &case.evidence.subscriptions {
            let Some(id) = only_id(subscription.webhook, published) else { continue };
            let delivery = case.deliveries.get(&id);
            let wanted = wanted(subscription, published, stored.map(|stored| stored.at));
            match wanted {
                Wanted::Yes | Wanted::Skipped => audit.counts.expected += 1,
                Wanted::Perhaps => audit.counts.perhaps += 1,
                Wanted::No => continue,
            }
            justified.insert(id);
            let what = || format!("delivery {id} of event {} to \"{}\"", published.event.id, subscription.name);
            let is_meddled = delivery.is_some_and(|delivery| case.is_meddled(delivery));
            match delivery.map(|delivery| delivery.state) {
                None if wanted != Wanted::Perhaps => {
                    audit.found(Kind::LostDelivery, format!("{}: no such row", what()));
                }
                Some(state @ (DeliveryState::Pending | DeliveryState::Retrying)) => {
                    audit.found(Kind::LostDelivery, format!("{}: still {state}", what()));
                }
                Some(DeliveryState::Cancelled) if !subscription.is_deleted() => {
                    audit.found(Kind::LostDelivery, format!("{}: cancelled", what()));
                }
                Some(DeliveryState::Skipped) if wanted == Wanted::Yes => {
                    audit.found(Kind::LostDelivery, format!("{}: skipped", what()));
                }
                Some(state) if wanted == Wanted::Skipped && state != DeliveryState::Skipped && !is_meddled => {
                    audit.found(Kind::Unwanted, format!("{}: {state}, though it was paused", what()));
                }
                _ => {}
            }
        }
    }
    for delivery in case.evidence.deliveries.iter().filter(|delivery| !delivery.is_test) {
        if justified.contains(&delivery.id) {
            continue;
        }
        let what =
            format!("delivery {} of event {} to \"{}\"", delivery.id, delivery.event, case.name(delivery.webhook));
        let is_of_another_id = case
            .published
            .get(&delivery.event)
            .is_some_and(|published| only_id(delivery.webhook, published).is_some_and(|id| id != delivery.id));
        audit.found(if is_of_another_id { Kind::WrongId } else { Kind::Unwanted }, what);
    }
}

fn suits(subscription: &Subscription, published: &Published) -> bool {
    subscription.tenant == published.event.tenant && subscription.types.contains(&published.event.event_type)
}

fn wanted(subscription: &Subscription, published: &Published, stored_at: Option<OffsetDateTime>) -> Wanted {
    if !suits(subscription, published) {
        return Wanted::No;
    }
    if subscription.changes.is_empty() {
        return Wanted::Yes;
    }
    // Without a time nothing is certain. A webhook without changes reports the lost event.
    let Some(at) = stored_at else { return Wanted::Perhaps };
    let (from, to) = (at - MAX_READ_AHEAD, at + MAX_CLOCK_DIFFERENCE);
    if subscription.changes.iter().any(|change| change.asked <= to && change.answered >= from) {
        return Wanted::Perhaps;
    }
    let last = subscription.changes.iter().rev().find(|change| change.answered < from);
    match last.map_or(WebhookState::Active, |change| change.to) {
        WebhookState::Active => Wanted::Yes,
        WebhookState::Paused => Wanted::Skipped,
        WebhookState::Deleted => Wanted::No,
    }
}

impl Subscription {
    fn is_deleted(&self) -> bool {
        self.changes.iter().any(|change| change.to == WebhookState::Deleted)
    }
}
