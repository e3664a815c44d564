//! The auditor finds whatever is falsified: each test alters lists that are in order.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use domain::{DeliveryId, DeliveryState, EventType, OutcomeClass, WebhookId};
use signing::{SigningSecret, sign};
use time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;

use super::{
    Kind::{
        self, EarlyDrop, FalseSuccess, Left, LostDelivery, LostEvent, Misconduct, NeverArrived, Redirected, Unwanted,
        WrongBody, WrongCount, WrongHealth, WrongHealthShown, WrongId, WrongSignature,
    },
    audit, only_id,
};
use crate::{
    chaos::evidence::{
        Attempt, Change, Delivery, Evidence, Health, HealthShown, Post, Published, StoredEvent, Subscription,
        WebhookState,
    },
    events::Event,
    receiver::Received,
};

const START: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);
const TENANT: Uuid = Uuid::from_u128(0x5b0e_0000_0000_4000_8000_0000_0000_0001);
const ATTEMPT_DURATION: Duration = Duration::from_millis(20);

fn webhook(number: u128) -> WebhookId {
    Uuid::from_u128(number).into()
}

fn subscription(number: u128) -> Subscription {
    Subscription {
        webhook: webhook(number),
        name: format!("webhook {number}"),
        tenant: TENANT,
        types: EventType::ALL.to_vec(),
        secret: format!("whsec_{number}"),
        changes: Vec::new(),
    }
}

fn at(seconds: f64) -> OffsetDateTime {
    START + time::Duration::seconds_f64(seconds)
}

/// Webhook 1 gets three events at once. Webhook 2 fails the first attempt of each and gets it about a second later.
fn in_order() -> Evidence {
    let subscriptions = vec![subscription(1), subscription(2)];
    let mut evidence = Evidence {
        schedule: "1s,2s".parse().unwrap(),
        subscriptions: subscriptions.clone(),
        published: Vec::new(),
        events: HashMap::new(),
        deliveries: Vec::new(),
        attempts: HashMap::new(),
        health: HashMap::new(),
        posts: Vec::new(),
        trapped: 0,
        resent: [].into(),
        left: Vec::new(),
        misconduct: Vec::new(),
    };
    for number in 0..3_u32 {
        let id = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0000 + u128::from(number));
        let (event_type, timestamp) = (EventType::QuoteClosed, "2026-03-01T09:30:00Z".to_owned());
        let event = Event { id, event_type, tenant: TENANT, timestamp, data: format!(r#"{{"event":"{id}"}}"#) };
        let body = format!(
            r#"{{"event_type":"quote.closed","tenant_id":"{TENANT}","timestamp":"{}","data":{}}}"#,
            event.timestamp, event.data
        );
        evidence.events.insert(id, StoredEvent { at: at(0.1), body: body.into_bytes() });
        evidence.published.push(Published { event, times: 1 });
        let base = f64::from(number) * 0.1 + 0.2;
        deliver(&mut evidence, &subscriptions[0], id, &[(base, 200)]);
        deliver(&mut evidence, &subscriptions[1], id, &[(base, 500), (base + 1.1, 200)]);
    }
    for number in [1, 2] {
        let rows: Vec<_> = rows_of(&evidence, number);
        let computed = super::health::Computed::of(&rows.iter().collect::<Vec<_>>());
        let shown = Health { last_success_at: computed.last_success_at, failure_count: *computed.failures.start() };
        evidence.health.insert(webhook(number), HealthShown { ledger: shown, api: Some(shown) });
    }
    evidence
}

fn rows_of(evidence: &Evidence, number: u128) -> Vec<Attempt> {
    let own = evidence.deliveries.iter().filter(|delivery| delivery.webhook == webhook(number));
    own.flat_map(|delivery| evidence.attempts[&delivery.id].clone()).collect()
}

fn deliver(evidence: &mut Evidence, to: &Subscription, event: Uuid, answers: &[(f64, u16)]) {
    let published = evidence.published.iter().find(|published| published.event.id == event).unwrap();
    let id = only_id(to.webhook, published).unwrap();
    let body = Bytes::from(evidence.events[&event].body.clone());
    let mut attempts = Vec::new();
    for (number, (second, status)) in (1..).zip(answers) {
        let (started_at, status) = (at(*second), *status);
        let signature = sign(&SigningSecret::from(to.secret.clone()), &body, started_at.unix_timestamp());
        let signed_at = started_at.unix_timestamp();
        let outcome = OutcomeClass::of_status(status);
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("x-service-webhook-id", id.to_string()),
            ("x-service-event", "quote.closed".to_owned()),
            ("x-service-signature", signature),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let (method, path) = ("POST".to_owned(), "/".to_owned());
        let received =
            Received { at: started_at + ATTEMPT_DURATION / 2, method, path, headers, body: body.clone(), status };
        evidence.posts.push(Post { webhook: to.webhook, received });
        let status = Some(status);
        // Far from one another.
        let transaction = started_at.unix_timestamp_nanos().try_into().unwrap();
        attempts.push(Attempt {
            delivery: id,
            number,
            signed_at,
            started_at,
            duration: ATTEMPT_DURATION,
            outcome,
            status,
            transaction,
        });
    }
    let attempted = u16::try_from(attempts.len()).unwrap();
    let state = DeliveryState::Succeeded;
    let delivery = Delivery { id, webhook: to.webhook, event, is_test: false, state, attempts: attempted, run_base: 0 };
    evidence.deliveries.push(delivery);
    evidence.attempts.insert(id, attempts);
}

/// The kinds that are found after a falsification, without repeats.
fn found(falsify: impl FnOnce(&mut Evidence)) -> Vec<Kind> {
    let mut evidence = in_order();
    falsify(&mut evidence);
    let mut kinds: Vec<_> = audit(&evidence).findings.into_iter().map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn header<'e>(evidence: &'e mut Evidence, post: usize, name: &str) -> &'e mut String {
    &mut evidence.posts[post].received.headers.iter_mut().find(|(own, _)| own == name).unwrap().1
}

/// The delivery of the first event to webhook 2, with two attempts.
fn second(evidence: &mut Evidence) -> (&mut Delivery, &mut Vec<Attempt>) {
    let delivery = &mut evidence.deliveries[1];
    let attempts = evidence.attempts.get_mut(&delivery.id).unwrap();
    (delivery, attempts)
}

#[test]
fn lists_that_are_in_order_are_counted_and_nothing_is_found() {
    let audit = audit(&in_order());
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
    let counts = audit.counts;
    assert_eq!((counts.published, counts.expected, counts.stored, counts.delivered), (3, 6, 6, 6));
    assert_eq!((counts.posts, counts.attempts, counts.unlogged, counts.repeated), (9, 9, 0, 0));
}

/// Changes one thing in lists that are in order.
type Falsify = fn(&mut Evidence);

fn other() -> DeliveryId {
    DeliveryId::from(Uuid::from_u128(77))
}

/// Each falsification, and all kinds of what is found then.
const FALSIFICATIONS: [(Falsify, &[Kind]); 28] = [
    (|lists| lists.events.clear(), &[LostEvent]),
    (
        |lists| {
            let event = lists.published[0].event.id;
            lists.events.clear();
            lists.deliveries.retain(|delivery| delivery.event != event);
        },
        &[LostEvent, LostDelivery, Unwanted, WrongCount],
    ),
    (|lists| _ = lists.deliveries.remove(0), &[LostDelivery, Unwanted, WrongCount]),
    (|lists| second(lists).0.state = DeliveryState::Pending, &[LostDelivery]),
    (|lists| second(lists).0.state = DeliveryState::Retrying, &[LostDelivery]),
    (|lists| second(lists).0.state = DeliveryState::Cancelled, &[LostDelivery]),
    (|lists| second(lists).0.state = DeliveryState::Dropped, &[EarlyDrop]),
    (
        |lists| {
            let last = &mut second(lists).1[1];
            (last.outcome, last.status) = (OutcomeClass::Timeout, None);
        },
        &[FalseSuccess],
    ),
    (|lists| _ = lists.posts.remove(0), &[NeverArrived]),
    (|lists| lists.posts[0].received.status = 500, &[NeverArrived]),
    (|lists| lists.posts[0].received.at += Duration::from_secs(1), &[NeverArrived]),
    (|lists| *header(lists, 0, "x-service-webhook-id") = other().to_string(), &[WrongId, NeverArrived]),
    (
        |lists| {
            let old = std::mem::replace(&mut lists.deliveries[0].id, other());
            let attempts = lists.attempts.remove(&old).unwrap();
            lists.attempts.insert(other(), attempts);
        },
        &[LostDelivery, Unwanted, WrongId, NeverArrived],
    ),
    (|lists| *header(lists, 0, "x-service-signature") = "t=1,v1=00".to_owned(), &[WrongSignature, NeverArrived]),
    (|lists| lists.subscriptions[0].secret.push('x'), &[WrongSignature]),
    (
        |lists| {
            let body = String::from_utf8(lists.posts[0].received.body.to_vec()).unwrap();
            lists.posts[0].received.body = body.replace("\"data\":{", "\"data\":{ ").into();
        },
        &[WrongBody, WrongSignature],
    ),
    (|lists| lists.events.values_mut().for_each(|event| event.body.push(b' ')), &[WrongBody]),
    (|lists| second(lists).0.attempts += 1, &[WrongCount]),
    (|lists| second(lists).1[1].number = 3, &[WrongCount]),
    (
        |lists| {
            let shown = lists.health.get_mut(&webhook(2)).unwrap();
            shown.ledger.failure_count = 1;
            shown.api = Some(shown.ledger);
        },
        &[WrongHealth],
    ),
    (
        |lists| lists.health.get_mut(&webhook(2)).unwrap().api.as_mut().unwrap().last_success_at = None,
        &[WrongHealthShown],
    ),
    // The last success was a test, which does not count.
    (|lists| lists.deliveries.last_mut().unwrap().is_test = true, &[WrongHealth]),
    (|lists| lists.health.clear(), &[WrongHealth]),
    (
        |lists| {
            let lost = lists.deliveries.remove(0);
            lists.attempts.remove(&lost.id);
        },
        &[LostDelivery, Unwanted],
    ),
    (|lists| lists.left.push("1 messages".to_owned()), &[Left]),
    (|lists| lists.trapped = 1, &[Redirected]),
    (|lists| lists.misconduct.push("it died".to_owned()), &[Misconduct]),
    (|_| (), &[]),
];

#[test]
fn each_falsification_is_found_as_what_it_is() {
    let wrong = FALSIFICATIONS.iter().enumerate().filter_map(|(number, (falsify, expected))| {
        let kinds = found(falsify);
        (kinds != *expected).then(|| format!("{number}: {kinds:?}, not {expected:?}"))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_webhook_that_was_paused_misses_only_what_came_meanwhile() {
    let change = |asked: f64, to| Change { asked: at(asked), answered: at(asked + 1.0), to };
    let without_first = |evidence: &mut Evidence, changes: &[Change]| {
        evidence.subscriptions[0].changes = changes.to_vec();
        let lost = evidence.deliveries.remove(0);
        evidence.posts.remove(0);
        let row = evidence.attempts.remove(&lost.id);
        assert!(row.is_some());
    };
    let long_ago = [change(-500.0, WebhookState::Paused), change(-400.0, WebhookState::Active)];
    assert_eq!(found(|evidence| without_first(evidence, &long_ago)), [Kind::LostDelivery]);
    assert_eq!(found(|evidence| without_first(evidence, &[change(-10.0, WebhookState::Paused)])), []);
    let still = [change(-100.0, WebhookState::Paused)];
    let found = found(|evidence| without_first(evidence, &still));
    assert_eq!(found, [Kind::LostDelivery, Kind::Unwanted], "it had to be skipped, and two others came though");
}

#[test]
fn a_retry_before_its_time_is_found() {
    let earlier = |by: f64| {
        found(|evidence| {
            second(evidence).1[1].started_at -= time::Duration::seconds_f64(by);
            second(evidence).1[1].duration += Duration::from_secs_f64(by);
        })
    };
    // The retry comes 0.08 s late.
    assert_eq!(earlier(0.15), []);
    assert_eq!(earlier(0.25), [Kind::EarlyRetry]);
    let close_to_the_one_before = |gap: f64| {
        let mut evidence = in_order();
        let event = evidence.published[0].event.id;
        let late = evidence.subscriptions[1].clone();
        let old = evidence.deliveries.remove(1);
        evidence.posts.retain(|post| super::id_of(post) != Some(old.id));
        deliver(&mut evidence, &late, event, &[(0.2, 500), (9.0, 500), (9.0 + gap, 200)]);
        let kinds: Vec<_> = audit(&evidence).findings.iter().map(|finding| finding.kind).collect();
        kinds.contains(&Kind::EarlyRetry)
    };
    assert!(close_to_the_one_before(0.5), "the shortest gap stays between overdue retries");
    assert!(!close_to_the_one_before(1.0));
}

#[test]
fn an_attempt_after_a_success_is_found_unless_somebody_asked_for_it() {
    let falsify = |evidence: &mut Evidence| {
        second(evidence).1[0].outcome = OutcomeClass::Success;
        second(evidence).1[0].status = Some(200);
        evidence.posts[1].received.status = 200;
    };
    assert!(found(falsify).contains(&Kind::AfterSuccess));
    let kinds = found(|evidence| {
        falsify(evidence);
        let id = second(evidence).0.id;
        evidence.resent.insert(id);
    });
    assert!(!kinds.contains(&Kind::AfterSuccess), "{kinds:?}");
}

#[test]
fn only_the_failures_recorded_after_the_last_success_count() {
    let computed = |rows: &[Attempt]| super::health::Computed::of(&rows.iter().collect::<Vec<_>>());
    let mut rows = rows_of(&in_order(), 2);
    assert_eq!(computed(&rows).last_success_at, Some(at(1.5) + ATTEMPT_DURATION));
    assert_eq!(computed(&rows).failures, 0..=0);
    let latest = rows.iter().map(|row| row.transaction).max().unwrap();
    let failed = rows.iter_mut().find(|row| !row.outcome.is_success()).unwrap();
    failed.transaction = latest - 1;
    assert_eq!(computed(&rows).failures, 0..=1, "in either order");
    rows.iter_mut().find(|row| !row.outcome.is_success()).unwrap().transaction = latest + 100;
    assert_eq!(computed(&rows).failures, 1..=1, "recorded later, though it ended earlier");
    rows.retain(|row| !row.outcome.is_success());
    assert_eq!(computed(&rows).last_success_at, None);
    assert_eq!(computed(&rows).failures, 3..=3);
}

#[test]
fn requests_that_repeat_a_success_are_counted_and_nothing_else_is_wrong_with_them() {
    let mut evidence = in_order();
    evidence.posts.push(evidence.posts[0].clone());
    let audit = audit(&evidence);
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
    assert_eq!((audit.counts.repeated, audit.counts.unlogged), (1, 1));
}
