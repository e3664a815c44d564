//! One attempt after another.

use std::time::Duration;

use end_to_end::{
    receiver::{Receiver, always, fails_then_succeeds},
    system::TestSystem,
    wait::{SOON, eventually, until},
};

use crate::health::{Health, LONG, health, publish, recorded_of};

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
