//! A tenant whose receivers hang, beside a healthy one.

use std::time::{Duration, Instant};

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::isolation::{LONG, events, hanging, options, recorded};

const MOVED: &str = "webhooks_jobs_moved_to_slow_lane_total";

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
    System::prepared(options(32, 8), async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
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
        assert!(metric(ops, r#"webhooks_jobs_moved_to_slow_lane_total{reason="webhook_share"}"#).await >= 100.0);
        eventually("the slow lane is at work", SOON, || async {
            (metric(ops, r#"webhooks_attempts_in_flight{lane="slow"}"#).await >= 1.0).then_some(())
        })
        .await;
        let depth = r#"webhooks_lane_ready_jobs{lane="slow"}"#;
        eventually("the slow lane's depth shows", SOON, || async { (metric(ops, depth).await > 50.0).then_some(()) })
            .await;
        let stamped = system.sql("SELECT webhook_id::text FROM slow_webhooks").await;
        assert_eq!(stamped.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), [stuck.id]);
        let shares = 32 / 8 + 8 / 8;
        assert!(hangs.received().len() <= shares, "no more than the shares of both lanes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_dead_webhooks_of_one_tenant_do_not_hold_up_another_tenant() {
    System::prepared(options(64, 16), async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
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
        assert!(metric(ops, r#"webhooks_jobs_moved_to_slow_lane_total{reason="tenant_share"}"#).await >= 100.0);
        assert!(hangs.received().len() <= 64 / 4 + 16 / 4, "no more than the shares of both lanes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_to_a_healthy_receiver_stays_in_the_main_lane() {
    /// Above a webhook's share of 8 slots. So few connections are made at once that no attempt counts as slow.
    const BURST: usize = 12;
    System::run(options(64, 16), async |system| {
        let tenant = Uuid::new_v4();
        let answers = Receiver::start(&system.ca, always(200));
        system.admin(tenant).await.create(&answers.url("/hook"), &["quote.closed"]).await;
        system.stop(Service::Dispatcher).await;
        system.upstream.publish(&events(tenant, BURST)).await;
        let queue = system.names.main();
        system.upstream.wait_ready(&queue, 12, SOON).await;
        let ops = system.start(Service::Dispatcher).await;
        answers.wait_for(BURST, LONG).await;
        let moved = metric(ops, MOVED).await;
        println!("{moved} of a healthy burst of {BURST} were moved");
        assert!(moved == 0.0, "{moved} were moved");
    })
    .await;
}
