//! Several dispatchers and many attempts at the same time.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Received, Receiver, Reply, always, behaviour},
    system::{Service, Subscriber, System, TestSystem, metric},
};

use crate::health::{Health, health, once, publish, recorded_of};

const EVENTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_dispatchers_count_every_failure_once_and_a_success_after_mixed_outcomes_leaves_none() {
    let system = TestSystem::serving(once(), [Service::Api, Service::Ingest]).await;
    let dispatchers = [system.start(Service::Dispatcher).await, system.start(Service::Dispatcher).await];
    every_failure_counts_once(&system).await;
    a_success_after_mixed_outcomes_leaves_no_failure(&system).await;
    for dispatcher in dispatchers {
        assert!(metric(dispatcher, "webhooks_delivery_attempts_total").await > 0.0, "both took part");
    }
}

async fn every_failure_counts_once(system: &System) {
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(500));
    // With three webhooks the dispatchers meet at several rows at a time.
    let mut webhooks = Vec::new();
    for number in 0..3 {
        webhooks.push(api.create(&receiver.url(&number.to_string()), &["quote.closed"]).await.id);
    }
    publish(system, tenant, EVENTS).await;
    recorded_of(system, tenant, i64::try_from(EVENTS * webhooks.len()).unwrap()).await;
    for webhook in &webhooks {
        let expected = Health { failures: EVENTS as u64, succeeded_at: None };
        assert_eq!(health(&api, webhook).await, expected);
    }
}

/// Half of the events fail, and their answers overtake one another.
fn mixed(request: &Received) -> Reply {
    let number = *request.body.iter().rev().find(|byte| byte.is_ascii_digit()).unwrap() - b'0';
    let status = if number.is_multiple_of(2) { 200 } else { 500 };
    Reply::status(status).after(Duration::from_millis(u64::from(number % 5) * 20))
}

async fn a_success_after_mixed_outcomes_leaves_no_failure(system: &System) {
    let Subscriber { tenant, api, receiver, webhook, .. } =
        system.subscriber(behaviour(|request, _| mixed(request))).await;
    let event = |number| Event::now(EventType::QuoteClosed, tenant).with_data(format!("{{\"number\":{number}}}"));
    system.upstream.publish(&(0..EVENTS).map(event).collect::<Vec<_>>()).await;
    recorded_of(system, tenant, i64::try_from(EVENTS).unwrap()).await;
    let mixed = health(&api, &webhook).await;
    let latest = "SELECT (extract(epoch FROM max(started_at + duration_us * interval '1 us')) * 1000000)::int8 \
                  FROM attempts WHERE outcome = 'success'";
    let success = mixed.succeeded_at.unwrap().unix_timestamp_nanos() / 1_000;
    // Start and duration are stored separately, each cut to microseconds.
    let apart = success - i128::from(system.count(latest).await);
    assert!((0..=2).contains(&apart), "it is the latest success, whoever recorded it, not {apart} us off");
    receiver.behave(always(200));
    publish(system, tenant, 1).await;
    recorded_of(system, tenant, i64::try_from(EVENTS).unwrap() + 1).await;
    let last = health(&api, &webhook).await;
    assert_eq!(last.failures, 0);
    assert!(last.succeeded_at > mixed.succeeded_at);
}
