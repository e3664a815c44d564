//! Checks what the receivers got against the publishers and the ledger.

use std::time::Duration;

use domain::OutcomeClass;
use serde_json::Value;
use uuid::Uuid;

use super::{Audit, Case, Kind, id_of, only_id};
use crate::{
    chaos::evidence::{Attempt, Delivery, Post},
    receiver::verify,
};

/// Tolerance for a clock that is adjusted. Attempts have the database's time, as their dispatcher last read it.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(500);

pub(super) fn check(case: &Case<'_>, audit: &mut Audit) {
    audit.counts.posts = case.evidence.posts.len();
    for post in &case.evidence.posts {
        judge(case, post, audit);
    }
    for delivery in &case.evidence.deliveries {
        let posts = case.posts.get(&delivery.id).map_or(&[][..], Vec::as_slice);
        judge_bodies(case, delivery, posts, audit);
        reconcile(case, delivery, posts, audit);
    }
}

/// Checks one request on its own: signature, id, body.
fn judge(case: &Case<'_>, post: &Post, audit: &mut Audit) {
    let name = case.name(post.webhook);
    let header = post.received.header("x-service-webhook-id").unwrap_or("none");
    let what = format!("POST with id {header} to \"{name}\" at {}", post.received.at);
    if let Some(subscription) = case.subscriptions.get(&post.webhook)
        && let Err(violation) = verify(&post.received, &subscription.secret)
    {
        audit.found(Kind::WrongSignature, format!("{what}: {violation}"));
    }
    let id = id_of(post);
    let known = id.and_then(|id| case.deliveries.get(&id));
    let Some(published) = event_in(&post.received.body).and_then(|event| case.published.get(&event)) else {
        match known {
            Some(delivery) if delivery.is_test => {}
            None => audit.found(Kind::Unwanted, format!("{what}: neither its event nor its delivery is known")),
            Some(_) => audit.found(Kind::WrongBody, format!("{what}: it is of no event that was published")),
        }
        return;
    };
    if id != only_id(post.webhook, published) {
        audit.found(Kind::WrongId, format!("{what}, event {}", published.event.id));
    } else if known.is_none() {
        audit.found(Kind::Unwanted, format!("{what}: the ledger has no such delivery"));
    }
    let envelope: Value = serde_json::from_slice(&post.received.body).unwrap_or_default();
    let body = String::from_utf8_lossy(&post.received.body);
    let is_whole = envelope["tenant_id"] == published.event.tenant.to_string()
        && envelope["event_type"] == published.event.event_type.as_str()
        && body.contains(&published.event.data);
    if !is_whole {
        audit.found(Kind::WrongBody, format!("{what}, event {}", published.event.id));
    }
}

/// Checks that every attempt sent the ledger's bytes.
fn judge_bodies(case: &Case<'_>, delivery: &Delivery, posts: &[&Post], audit: &mut Audit) {
    let Some(stored) = case.evidence.events.get(&delivery.event) else { return };
    if posts.iter().any(|post| post.received.body != stored.body) {
        let name = case.name(delivery.webhook);
        audit.found(Kind::WrongBody, format!("delivery {} to \"{name}\": not the ledger's bytes", delivery.id));
    }
}

/// Finds the request of each attempt. Reports answered attempts without one, counts requests without an attempt.
fn reconcile(case: &Case<'_>, delivery: &Delivery, posts: &[&Post], audit: &mut Audit) {
    let attempts = case.evidence.attempts.get(&delivery.id).map_or(&[][..], Vec::as_slice);
    let mut unlogged: Vec<_> = posts.to_vec();
    // Attempts with a status match more exactly, so they choose first.
    let (sure, unsure): (Vec<_>, Vec<_>) = attempts.iter().partition(|attempt| attempt.status.is_some());
    for attempt in sure.into_iter().chain(unsure) {
        if let Some(found) = unlogged.iter().position(|post| is_of(post, attempt)) {
            unlogged.remove(found);
        } else if matches!(attempt.outcome, OutcomeClass::Success | OutcomeClass::Status) {
            let (number, outcome) = (attempt.number, attempt.outcome);
            let name = case.name(delivery.webhook);
            let what = format!("delivery {} to \"{name}\": attempt {number}, {outcome}", delivery.id);
            audit.found(Kind::NeverArrived, what);
        }
    }
    audit.counts.unlogged += unlogged.len();
    if !case.is_meddled(delivery) {
        audit.counts.repeated += repeated(posts);
    }
}

fn is_of(post: &Post, attempt: &Attempt) -> bool {
    let (from, to) = (attempt.started_at - CLOCK_TOLERANCE, attempt.finished_at() + CLOCK_TOLERANCE);
    let signed = format!("t={},", attempt.signed_at);
    let is_signed_so = post.received.header("x-service-signature").is_some_and(|header| header.starts_with(&signed));
    let is_answered_so = attempt.status.is_none_or(|status| status == post.received.status);
    is_signed_so && is_answered_so && (from..=to).contains(&post.received.at)
}

/// The requests after the first one that was answered with 2xx.
fn repeated(posts: &[&Post]) -> usize {
    let first = posts.iter().position(|post| (200..300).contains(&post.received.status));
    first.map_or(0, |first| posts.len() - first - 1)
}

fn event_in(body: &[u8]) -> Option<Uuid> {
    let envelope: Value = serde_json::from_slice(body).ok()?;
    envelope["data"]["event"].as_str()?.parse().ok()
}
