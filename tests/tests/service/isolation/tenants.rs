//! A tenant whose receivers hang, beside a healthy one.

use std::time::{Duration, Instant};

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System, TestSystem, metric},
    wait::SOON,
};
use uuid::Uuid;

use crate::isolation::{LONG, events, hanging, options, recorded};

const HELD: &str = "webhooks_jobs_held_total";

/// Publishes 100 events of a tenant, four at a time, so that it is never over its share, and waits for each four.
/// Returns how long all took.
async fn steadily(system: &System, tenant: Uuid, receiver: &Receiver) -> Duration {
    const FEW: usize = 4;
    let began = Instant::now();
    for _ in 0..100 / FEW {
        let before = receiver.received().len();
        system.upstream.publish(&events(tenant, FEW)).await;
        receiver.wait_for(before + FEW, LONG).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_receiver_does_not_hold_up_another_tenant() {
    let system = TestSystem::serving(options(32, 8), [Service::Api, Service::Ingest]).await;
    let ops = system.start(Service::Dispatcher).await;
    let (slow, healthy) = (Uuid::new_v4(), Uuid::new_v4());
    let (hangs, answers) = (hanging(&system), Receiver::start(&system.ca, always(200)));
    let stuck = system.admin(slow).await.create(&hangs.url("/hook"), &["quote.closed"]).await;
    system.admin(healthy).await.create(&answers.url("/hook"), &["quote.closed"]).await;

    let alone = steadily(&system, healthy, &answers).await;
    system.upstream.publish(&events(slow, 400)).await;
    hangs.wait_for(4, SOON).await;
    let beside = steadily(&system, healthy, &answers).await;
    println!("a steady healthy tenant: {alone:?} alone, {beside:?} beside a hanging one");

    assert_eq!(recorded(&system, slow).await, 0, "no hanging attempt has ended yet");
    assert!(metric(ops, r#"webhooks_jobs_held_total{reason="slow"}"#).await >= 100.0);
    let held = format!("SELECT count(*) FROM held_jobs WHERE webhook_id = '{}' AND reason = 'slow'", stuck.id);
    assert!(system.count(&held).await >= 300);
    let shares = 32 / 8 + 8 / 4;
    assert!(hangs.received().len() <= shares, "no more than the shares of both lanes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_dead_webhooks_of_one_tenant_do_not_hold_up_another_tenant() {
    let system = TestSystem::serving(options(64, 16), [Service::Api, Service::Ingest]).await;
    let ops = system.start(Service::Dispatcher).await;
    let (dead, healthy) = (Uuid::new_v4(), Uuid::new_v4());
    let (hangs, answers) = (hanging(&system), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(dead).await;
    for number in 0..200 {
        admin.create(&hangs.url(&format!("/{number}")), &["quote.closed"]).await;
    }
    system.admin(healthy).await.create(&answers.url("/hook"), &["quote.closed"]).await;

    system.upstream.publish(&events(dead, 3)).await;
    hangs.wait_for(16, SOON).await;
    let beside = steadily(&system, healthy, &answers).await;
    println!("a steady healthy tenant beside 200 dead webhooks: {beside:?}");

    assert_eq!(recorded(&system, dead).await, 0, "no hanging attempt has ended yet");
    assert!(metric(ops, HELD).await >= 100.0);
    let shares = 64 / 4 + 32 / 8 + 8 / 4;
    assert!(hangs.received().len() <= shares, "no more than the shares of main lane, long places and slow lane");
}

/// Receivers fail by platforms: their webhooks' shares are many times all slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_platform_of_many_tenants_that_hangs_does_not_hold_up_another_tenant() {
    const TENANTS: usize = 40;
    let system = TestSystem::serving(options(64, 16), [Service::Api, Service::Ingest]).await;
    let ops = system.start(Service::Dispatcher).await;
    let healthy = Uuid::new_v4();
    let (hangs, answers) = (hanging(&system), Receiver::start(&system.ca, always(200)));
    system.admin(healthy).await.create(&answers.url("/hook"), &["quote.closed"]).await;
    let mut on_platform = Vec::new();
    for number in 0..TENANTS {
        let (tenant, admin) = system.tenant().await;
        for path in ["a", "b"] {
            admin.create(&hangs.url(&format!("/{number}/{path}")), &["quote.closed"]).await;
        }
        on_platform.extend(events(tenant, 5));
    }
    let alone = steadily(&system, healthy, &answers).await;
    system.upstream.publish(&on_platform).await;
    hangs.wait_for(16, SOON).await;
    let beside = steadily(&system, healthy, &answers).await;
    println!("a steady healthy tenant: {alone:?} alone, {beside:?} beside a platform that hangs");
    let ended = "SELECT count(*) FROM attempts WHERE outcome <> 'success'";
    assert_eq!(system.count(ended).await, 0, "no hanging attempt has ended yet");
    assert!(metric(ops, HELD).await >= 100.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_to_a_healthy_receiver_stays_in_the_main_lane() {
    /// Above a webhook's share of 8 slots. So few connections are made at once that no attempt counts as slow.
    const BURST: usize = 12;
    let system = TestSystem::running(options(64, 16)).await;
    let tenant = Uuid::new_v4();
    let answers = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&answers.url("/hook"), &["quote.closed"]).await;
    system.stop(Service::Dispatcher).await;
    system.upstream.publish(&events(tenant, BURST)).await;
    let queue = system.names.main();
    system.upstream.wait_ready(&queue, 12, SOON).await;
    let ops = system.start(Service::Dispatcher).await;
    answers.wait_for(BURST, LONG).await;
    let held = metric(ops, HELD).await;
    println!("{held} of a healthy burst of {BURST} were held");
    assert!(held == 0.0, "{held} were held");
}
