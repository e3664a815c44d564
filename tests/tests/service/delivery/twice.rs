//! The same event more than once (crates/README.md, invariant 2).

use bytes::Bytes;
use domain::{DeliveryId, EventType, Job, WebhookId};
use end_to_end::{
    events::Event,
    receiver::always,
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::until,
};
use ledger::{NewEvent, Stored, StoredBody};
use uuid::Uuid;

use crate::delivery::{LONG, ended, judged, start_all};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_with_the_same_events_in_opposite_orders_wait_for_one_another() {
    const EVENTS: usize = 2_000;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (ledger, tenant) = (system.ledger_as("orders", 2), Uuid::new_v4());
    let api = system.admin(tenant).await;
    api.create("https://localhost/", &["quote.closed"]).await;
    let other = api.create("https://localhost/", &["quote.closed"]).await.id;
    system.sql(&format!("UPDATE webhooks SET is_active = false WHERE id = '{other}'")).await;
    let store = async |events: &[NewEvent]| {
        let stored = ledger.events_store(events).await.unwrap();
        stored.deliveries.len() + stored.skipped.len()
    };
    let mut reported = 0;
    for round in 1..=20 {
        let events: Vec<_> = (0..EVENTS).map(|_| new_event(tenant)).collect();
        let back: Vec<_> = events.iter().rev().cloned().collect();
        // In even rounds the second batch goes to another webhook: the change comes once the first one has begun.
        let later = async {
            if round % 2 == 0 {
                system.sql("UPDATE webhooks SET is_active = NOT is_active").await;
            }
            store(&back).await
        };
        let (one, other) = tokio::join!(store(&events), later);
        reported += one + other;
        assert_eq!(system.count("SELECT count(*) FROM events").await, i64::try_from(round * EVENTS).unwrap());
        let stored = system.count("SELECT count(*) FROM deliveries").await;
        assert_eq!(stored, i64::try_from(reported).unwrap(), "each is reported once");
    }
}

pub(crate) fn new_event(tenant: Uuid) -> NewEvent {
    NewEvent {
        id: Uuid::now_v7().into(),
        timestamp: "2026-03-01T09:30:00Z".parse().unwrap(),
        tenant: tenant.into(),
        event_type: EventType::QuoteClosed,
        body: Bytes::from_static(b"{}"),
        traceparent: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_derives_the_ids_that_the_specification_names_and_says_what_nobody_wants() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (ledger, tenant) = (system.ledger_as("ids", 1), Uuid::new_v4());
    let api = system.admin(tenant).await;
    let mut webhooks = Vec::new();
    for _ in 0..5 {
        let id: Uuid = api.create("https://localhost/", &["quote.closed"]).await.id.parse().unwrap();
        webhooks.push(WebhookId::from(id));
    }
    let times = ["1970-01-01T00:00:00Z", "2026-03-01T09:30:00.123999Z", "9999-12-31T23:59:59.999999Z"];
    let events = (0..300).map(|number| NewEvent {
        id: Uuid::new_v4().into(),
        timestamp: times[number % 3].parse().unwrap(),
        ..new_event(if number % 7 == 0 { Uuid::new_v4() } else { tenant })
    });
    let events: Vec<_> = events.collect();
    let mut stored = ledger.events_store(&events).await.unwrap();
    let wanted = |number: &usize| events[*number].tenant == tenant.into();
    let (wanted, unwanted): (Vec<_>, Vec<_>) = (0..events.len()).partition(wanted);
    let derived = wanted.iter().flat_map(|number| {
        let NewEvent { id, event_type, timestamp, .. } = events[*number];
        let derived = move |webhook| DeliveryId::derive(webhook, id, event_type, timestamp);
        webhooks.iter().map(move |webhook| (*number, derived(*webhook)))
    });
    let mut derived: Vec<_> = derived.collect();
    derived.sort_unstable();
    stored.deliveries.sort_unstable();
    stored.unwanted.sort_unstable();
    let mut untried = ledger.deliveries_untried(&events.iter().collect::<Vec<_>>()).await.unwrap();
    untried.sort_unstable();
    assert_eq!(untried, derived, "of any week");
    assert_eq!(stored, Stored { deliveries: derived, unwanted: unwanted.clone(), ..Stored::default() });
    let mut again = ledger.events_store(&events).await.unwrap();
    again.unwanted.sort_unstable();
    assert_eq!(again, Stored { unwanted, ..Stored::default() });
    let stored = system.count("SELECT count(*) FROM events").await;
    assert_eq!(stored, i64::try_from(wanted.len()).unwrap(), "of a batch, only what somebody wants");
}

/// All have one id and one moment: they differ in their tenant or type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_events_with_one_id_and_moment_the_ledger_says_which_one_each_delivery_is_of() {
    let system = TestSystem::shared().await;
    let ledger = system.ledger_as("identity", 1);
    let tenants = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    let now = Event::now(EventType::QuoteClosed, tenants[0]).timestamp.parse().unwrap();
    let same = NewEvent { timestamp: now, ..new_event(tenants[0]) };
    let (mut paused, mut deliveries) = (Vec::new(), Vec::new());
    let of = |webhook: &str, event: &NewEvent| {
        let webhook = webhook.parse::<Uuid>().unwrap().into();
        DeliveryId::derive(webhook, event.id, event.event_type, event.timestamp)
    };
    let types = [EventType::StockReceiptCompleted, EventType::QuoteClosed, EventType::QuoteAccepted];
    let events: Vec<_> = tenants
        .iter()
        .flat_map(|tenant| types.map(|event_type| NewEvent { event_type, tenant: (*tenant).into(), ..same.clone() }))
        .enumerate()
        .map(|(number, event)| NewEvent { body: format!("{{\"number\":{number}}}").into(), ..event })
        .collect();
    let (first, second) = (system.admin(tenants[0]).await, system.admin(tenants[1]).await);
    for (api, event_type, event) in [(&first, types[1], 1), (&second, types[1], 4), (&second, types[2], 5)] {
        let webhook = api.create("https://localhost/", &[event_type.as_str()]).await.id;
        deliveries.push((event, of(&webhook, &events[event])));
    }
    let webhook = first.create("https://localhost/", &[types[2].as_str()]).await.id;
    system.sql(&format!("UPDATE webhooks SET is_active = false WHERE id = '{webhook}'")).await;
    paused.push((2, of(&webhook, &events[2])));

    let before = ledger.events_store(&events[4..5]).await.unwrap();
    assert_eq!(before.deliveries, [(0, deliveries.remove(1).1)]);
    let mut again = events.clone();
    again[4].body = Bytes::from_static(b"another body, which changes nothing");
    let mut stored = ledger.events_store(&again).await.unwrap();
    stored.deliveries.sort_unstable();
    stored.unwanted.sort_unstable();
    let unwanted = vec![0, 3, 6, 7, 8];
    assert_eq!(stored, Stored { deliveries: deliveries.clone(), skipped: paused, unwanted, ..Stored::default() });
    let mut untried = ledger.deliveries_untried(&events.iter().collect::<Vec<_>>()).await.unwrap();
    untried.sort_unstable();
    deliveries.insert(1, (4, before.deliveries[0].1));
    assert_eq!(untried, deliveries);
    for (number, delivery) in deliveries {
        let loaded = ledger.deliveries_load(&[delivery]).await.unwrap().remove(0).unwrap();
        let body = &events[number].body;
        assert!(matches!(loaded.body, StoredBody::Here(here) if here == *body), "{number}");
        assert_eq!(ledger.body_load(delivery).await.unwrap().as_ref(), Some(body));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ingests_that_get_copies_of_the_same_events_make_one_delivery_of_each() {
    let system = TestSystem::prepared(Options::default()).await;
    let ingests = [start_all(&system).await, system.start(Service::Ingest).await];
    let Subscriber { tenant, api, receiver, .. } = system.subscriber(always(200)).await;
    api.create(&receiver.url("/two"), &["quote.closed"]).await;
    let events = Event::closed(tenant, 100);
    let copies: Vec<_> = events.iter().flat_map(|event| [event.clone(), event.clone(), event.clone()]).collect();
    system.upstream.publish(&copies).await;
    until("every copy is judged", LONG, || async {
        let name = "webhooks_ingest_events_total";
        let copies = metric(ingests[0], name).await + metric(ingests[1], name).await;
        copies >= 300.0
    })
    .await;
    ended(&system, &[tenant], 100).await;
    assert_eq!(receiver.received().len(), 200);
    assert_eq!(system.count("SELECT count(*) FROM events").await, 100);
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 200);
    assert_eq!(judged(ingests[0], "accepted").await + judged(ingests[1], "accepted").await, 100.0);
}

/// Removes all jobs from a queue. Returns their deliveries.
async fn jobs(system: &System, queue: &str) -> Vec<DeliveryId> {
    let messages = system.upstream.take_all(queue).await;
    messages.iter().flat_map(|message| Job::parse(&message.data).unwrap()).map(|job| job.delivery).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_with_one_id_and_moment_are_judged_and_routed_by_their_tenants_and_types() {
    const OTHERS: usize = 60;
    let system = TestSystem::prepared(Options::with([("INGEST__FLOOD", "2")])).await;
    let ingest = start_all(&system).await;
    // Its jobs stay on their queues.
    system.stop(Service::Dispatcher).await;
    let (flooding, quiet, stranger) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let of = async |tenant, types: &[&str]| {
        let id = system.admin(tenant).await.create("https://localhost/", types).await.id;
        WebhookId::from(id.parse::<Uuid>().unwrap())
    };
    let (loud, calm) = (of(flooding, &["quote.closed"]).await, of(quiet, &["quote.closed", "quote.accepted"]).await);
    let same = Event::now(EventType::QuoteClosed, quiet);
    let like = |tenant, event_type| Event { tenant, event_type, ..same.clone() };
    let delivery =
        |webhook, event_type| DeliveryId::derive(webhook, same.id.into(), event_type, same.timestamp.parse().unwrap());
    system.upstream.publish(std::slice::from_ref(&same)).await;
    until("the first one is judged", LONG, || async { judged(ingest, "accepted").await == 1.0 }).await;
    system.stop(Service::Ingest).await;
    assert_eq!(jobs(&system, &system.names.main()).await, [delivery(calm, EventType::QuoteClosed)]);

    let mut events = Event::closed(flooding, OTHERS);
    events.extend([
        like(flooding, EventType::QuoteAccepted),
        same.clone(),
        like(stranger, EventType::QuoteClosed),
        like(flooding, EventType::QuoteClosed),
        like(quiet, EventType::QuoteAccepted),
    ]);
    system.upstream.publish(&events).await;
    let ingest = system.start(Service::Ingest).await;
    until_metric(ingest, "webhooks_ingest_events_total", events.len() as f64, LONG).await;
    let accepted = (OTHERS + 2) as f64;
    for (outcome, count) in [("accepted", accepted), ("duplicate", 1.0), ("unwanted", 2.0)] {
        assert_eq!(judged(ingest, outcome).await, count, "{outcome}");
    }
    // What is acknowledged was confirmed before.
    system.stop(Service::Ingest).await;
    for queue in [system.names.events(), system.names.rejected()] {
        assert_eq!(system.upstream.ready(&queue).await, 0, "{queue}");
    }
    // The flood may begin with its second batch.
    let (main, bulk) = (jobs(&system, &system.names.main()).await, jobs(&system, &system.names.bulk()).await);
    assert_eq!(main.len() + bulk.len(), OTHERS + 2);
    assert!(
        bulk.contains(&delivery(loud, EventType::QuoteClosed)),
        "{} main {} bulk, in main: {}",
        main.len(),
        bulk.len(),
        main.contains(&delivery(loud, EventType::QuoteClosed))
    );
    assert!(main.contains(&delivery(calm, EventType::QuoteAccepted)), "{main:?}");
}
