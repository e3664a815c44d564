//! Which webhook gets which events.

use std::collections::{BTreeMap, BTreeSet};

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, always, verify},
    system::{Options, Subscriber, TestSystem},
};
use serde_json::{Value, json};

use crate::delivery::{ended, judged, settled, start_all};

/// How many requests each path got.
fn by_path(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut paths = BTreeMap::new();
    for one in receiver.received() {
        *paths.entry(one.path).or_default() += 1;
    }
    paths
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.map(|(path, count)| (path.to_owned(), count)).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_gets_the_types_that_it_subscribed_to_and_no_other_signed() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let all = EventType::ALL.map(EventType::as_str);
    let subscriptions = [("/one", &all[..1]), ("/two", &[all[0], all[6]]), ("/all?x=1", &all[..])];
    let mut secrets = BTreeMap::new();
    for (path, types) in subscriptions {
        secrets.insert(path, api.create(&receiver.url(path), types).await);
    }
    system.upstream.publish(&EventType::ALL.map(|event_type| Event::now(event_type, tenant))).await;
    // Each event is wanted.
    ended(&system, &[tenant], 7).await;
    let received = receiver.received();
    assert_eq!(received.len(), 1 + 2 + 7);
    for (path, types) in subscriptions {
        let mine = received.iter().filter(|one| one.path == path);
        let got: BTreeSet<_> = mine.clone().map(|one| one.header("x-service-event").unwrap()).collect();
        assert_eq!(got, types.iter().copied().collect(), "{path}");
        mine.for_each(|one| verify(one, &secrets[path].secret).unwrap());
        let health = api.webhook(&secrets[path].id).await;
        assert!(health["last_success_at"].is_string() && health["failure_count"] == 0, "{health}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_id_as_two_types_is_two_events_together_or_apart_and_again() {
    let system = TestSystem::prepared(Options::default()).await;
    let ingest = start_all(&system).await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    api.create(&receiver.url("/accepted"), &["quote.accepted"]).await;
    api.create(&receiver.url("/both"), &["quote.accepted", "quote.closed"]).await;
    let pair = || {
        let closed = Event::now(EventType::QuoteClosed, tenant).with_data("{\"is\":\"closed\"}");
        let accepted = Event { event_type: EventType::QuoteAccepted, ..closed.clone() };
        [closed, accepted.with_data("{\"is\":\"accepted\"}")]
    };
    let (together, apart) = (pair(), pair());
    system.upstream.publish(&together).await;
    settled(&system, ingest, 2).await;
    // The same moment with another offset, and other data: neither makes it another event.
    let again = |event: &Event| {
        let timestamp = event.timestamp.replace('Z', "+00:00");
        Event { timestamp, ..event.clone().with_data("{\"is\":\"another\"}") }
    };
    let later = together.iter().chain(&apart).map(again);
    for (number, one) in apart.iter().cloned().chain(later).enumerate() {
        system.upstream.publish(&[one]).await;
        settled(&system, ingest, u32::try_from(number).unwrap() + 3).await;
    }
    assert_eq!(by_path(&receiver), counts([("/accepted", 2), ("/both", 4)]));
    let (mut ids, mut bodies) = (BTreeSet::new(), BTreeMap::new());
    for one in receiver.received() {
        let event_type = one.header("x-service-event").unwrap().to_owned();
        let body: Value = serde_json::from_slice(&one.body).unwrap();
        assert_eq!(body["event_type"], event_type);
        assert_eq!(format!("quote.{}", body["data"]["is"].as_str().unwrap()), event_type);
        *bodies.entry(event_type).or_insert(0) += 1;
        ids.insert(one.header("x-service-webhook-id").unwrap().to_owned());
    }
    assert_eq!(bodies, [("quote.accepted".to_owned(), 4), ("quote.closed".to_owned(), 2)].into());
    assert_eq!(ids.len(), 6);
    assert_eq!((judged(ingest, "accepted").await, judged(ingest, "duplicate").await), (4.0, 4.0));
    assert_eq!(system.count("SELECT count(*) FROM events").await, 4);
    assert_eq!(system.count("SELECT count(*) FROM deliveries").await, 6);
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_of_subscriptions_holds_from_the_next_event_on() {
    let system = TestSystem::shared().await;
    // Wants each event, so each is stored.
    let Subscriber { tenant, api, receiver, .. } = system.subscriber(always(200)).await;
    let mut events = 0;
    let mut got = async || {
        let before = receiver.received().len();
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        events += 1;
        ended(&system, &[tenant], events).await;
        let mut paths: Vec<_> = receiver.received().split_off(before).into_iter().map(|one| one.path).collect();
        paths.sort();
        assert_eq!(paths.remove(0), "/");
        paths.join(" ")
    };
    assert_eq!(got().await, "");
    let one = api.create(&receiver.url("/one"), &["quote.closed"]).await;
    assert_eq!(got().await, "/one");
    let two = api.create(&receiver.url("/two"), &["quote.closed"]).await;
    assert_eq!(got().await, "/one /two");
    let (one, two) = (format!("/api/v1/webhooks/{}/", one.id), format!("/api/v1/webhooks/{}/", two.id));
    assert_eq!(api.patch(&one, &json!({"events": ["quote.accepted"]})).await.status, 200);
    assert_eq!(got().await, "/two");
    assert_eq!(api.patch(&two, &json!({"is_active": false})).await.status, 200);
    assert_eq!(got().await, "");
    assert_eq!(api.patch(&one, &json!({"events": ["quote.closed"]})).await.status, 200);
    assert_eq!(got().await, "/one");
    assert!(api.delete(&one).await.status < 300);
    assert_eq!(got().await, "");
    assert_eq!(api.patch(&two, &json!({"is_active": true})).await.status, 200);
    assert_eq!(got().await, "/two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_event_goes_to_fifty_webhooks_and_is_stored_once() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let mut secrets = BTreeMap::new();
    for number in 0..50 {
        let path = format!("/{number}");
        secrets.insert(path.clone(), api.create(&receiver.url(&path), &["quote.closed"]).await.secret);
    }
    assert_eq!(secrets.values().collect::<BTreeSet<_>>().len(), 50, "each has a secret of its own");
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    ended(&system, &[tenant], 1).await;
    let received = receiver.received();
    assert_eq!(received.len(), 50);
    let ids: BTreeSet<_> = received.iter().map(|one| one.header("x-service-webhook-id").unwrap()).collect();
    let paths: BTreeSet<_> = received.iter().map(|one| one.path.as_str()).collect();
    let bodies: BTreeSet<_> = received.iter().map(|one| &one.body).collect();
    assert_eq!((ids.len(), paths.len(), bodies.len()), (50, 50, 1));
    for one in &received {
        verify(one, &secrets[&one.path]).unwrap();
    }
    let stored = format!("SELECT count(*) FROM events WHERE tenant_id = '{tenant}'");
    assert_eq!(system.count(&stored).await, 1);
    let succeeded = format!(
        "SELECT count(*) FROM deliveries AS d JOIN webhooks AS w ON w.id = d.webhook_id \
         WHERE w.tenant_id = '{tenant}' AND d.state = 'succeeded'"
    );
    assert_eq!(system.count(&succeeded).await, 50);
}
