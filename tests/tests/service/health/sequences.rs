//! One attempt after another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use end_to_end::{
    receiver::{Behaviour, Received, Receiver, Reply, always, behaviour, fails_then_succeeds},
    system::TestSystem,
    wait::{SOON, eventually, until},
};

use crate::health::{Health, LONG, health, once, publish, read, recorded, recorded_of};

/// The path says how to answer the first, the second, … request: `/sf` succeeds and then fails.
fn scripted() -> Behaviour {
    let seen = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    behaviour(move |request, _| {
        let mut seen = seen.lock().unwrap();
        let nth = seen.entry(request.path.clone()).or_default();
        *nth += 1;
        Reply::status(if request.path.as_bytes()[*nth] == b's' { 200 } else { 500 })
    })
}

/// Asserts the health after a step, given the health before it and the step's request.
fn check(path: &str, before: Health, after: Health, request: &Received) {
    if request.status == 500 {
        let expected = Health { failures: before.failures + 1, ..before };
        assert_eq!(after, expected, "{path}: a failure counts, and the last success stays as it was");
        return;
    }
    assert_eq!(after.failures, 0, "{path}: a success sets the count to zero");
    let at = after.succeeded_at.unwrap();
    let late = at - request.at;
    assert!(late > -time::Duration::milliseconds(50) && late < Duration::from_secs(5), "{path}: {late} off");
    assert!(before.succeeded_at.is_none_or(|before| before < at), "{path}: it never goes back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sequence_of_successes_and_failures_leaves_the_right_health_after_each_step() {
    const STEPS: usize = 4;
    let system = TestSystem::running(once()).await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, scripted());
    let mut webhooks = HashMap::new();
    for number in 0..1_usize << STEPS {
        let script: String = (0..STEPS).map(|step| if number >> step & 1 == 1 { 's' } else { 'f' }).collect();
        let path = format!("/{script}");
        let webhook = api.create(&receiver.url(&path), &["quote.closed"]).await.id;
        assert_eq!(health(&api, &webhook).await, Health { failures: 0, succeeded_at: None });
        webhooks.insert(path, (webhook, Health { failures: 0, succeeded_at: None }));
    }
    for step in 1..=STEPS {
        publish(&system, tenant, 1).await;
        recorded(&system, i64::try_from(webhooks.len() * step).unwrap()).await;
        let received = receiver.received();
        for (path, (webhook, known)) in &mut webhooks {
            let requests: Vec<_> = received.iter().filter(|one| one.path == *path).collect();
            assert_eq!(requests.len(), step);
            let now = health(&api, webhook).await;
            check(path, *known, now, requests[step - 1]);
            *known = now;
        }
    }
    let list = api.get("/api/v1/webhooks/?limit=100").await.json();
    let listed = list["data"].as_array().unwrap();
    assert_eq!(listed.len(), webhooks.len());
    for (webhook, known) in webhooks.values() {
        let entry = listed.iter().find(|entry| entry["id"] == webhook.as_str()).unwrap();
        assert_eq!(read(entry), *known, "the list says the same");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_of_a_delivery_counts_until_it_is_dropped_or_succeeds() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = |behaviour| Receiver::start(&system.ca, behaviour);
    let (failing, mending, fine) = (receiver(always(500)), receiver(fails_then_succeeds(2)), receiver(always(200)));
    let mut webhooks = Vec::new();
    for one in [&failing, &mending, &fine] {
        webhooks.push(api.create(&one.url("/"), &["quote.closed"]).await.id);
    }
    publish(&system, tenant, 1).await;
    until("the second failure of two counts", SOON, || async {
        let second = health(&api, &webhooks[0]).await;
        second.failures >= 2
    })
    .await;
    recorded_of(&system, tenant, 7 + 3 + 1).await;
    assert_eq!(health(&api, &webhooks[0]).await, Health { failures: 7, succeeded_at: None });
    for (webhook, receiver) in [(&webhooks[1], &mending), (&webhooks[2], &fine)] {
        let health = health(&api, webhook).await;
        assert_eq!(health.failures, 0);
        let late = health.succeeded_at.unwrap() - receiver.received().last().unwrap().at;
        assert!(late.abs() < Duration::from_secs(5), "{late} off");
    }
    // After the drop, the count goes on with the next event.
    failing.behave(always(200));
    publish(&system, tenant, 1).await;
    let mended = eventually("the next delivery succeeds", LONG, || async {
        let health = health(&api, &webhooks[0]).await;
        health.succeeded_at.is_some().then_some(health)
    })
    .await;
    assert_eq!(mended.failures, 0);
}
