//! A tenant whose receivers hang, beside a healthy one.

use std::time::{Duration, Instant};

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System, TestSystem, metric},
    wait::SOON,
};
use uuid::Uuid;

use crate::isolation::{LONG, events, options};

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

/// Tenants with a receiver that hangs, beside a healthy one.
struct Hanging {
    tenants: usize,
    webhooks: usize,
    /// The events of each tenant.
    events: usize,
    /// The slots of the main and of the slow lane.
    slots: (usize, usize),
    /// The most requests that the receiver may get: their shares of the main lane, of the long places and of the slow lane.
    most: usize,
    /// The least number of their jobs that wait in the ledger.
    held: i64,
    /// The healthy receiver has answered quickly before.
    is_known: bool,
}

async fn holds_up_nobody(hanging: Hanging) {
    let Hanging { tenants, webhooks, events: of_each, slots: (main, slow), most, held, is_known } = hanging;
    let system = TestSystem::serving(options(main, slow), [Service::Api, Service::Ingest]).await;
    let ops = system.start(Service::Dispatcher).await;
    let (hangs, answers) = (super::hanging(&system), Receiver::start(&system.ca, always(200)));
    let healthy = Uuid::new_v4();
    system.admin(healthy).await.create(&answers.url("/hook"), &["quote.closed"]).await;
    let mut of_hanging = Vec::new();
    for tenant in 0..tenants {
        let (id, admin) = system.tenant().await;
        for webhook in 0..webhooks {
            admin.create(&hangs.url(&format!("/{tenant}/{webhook}")), &["quote.closed"]).await;
        }
        of_hanging.extend(events(id, of_each));
    }
    if is_known {
        println!("a steady healthy tenant: {:?} alone", steadily(&system, healthy, &answers).await);
    }
    system.upstream.publish(&of_hanging).await;
    hangs.wait_for((4 * tenants * webhooks).min(16), SOON).await;
    let beside = steadily(&system, healthy, &answers).await;
    println!("a steady healthy tenant: {beside:?} beside {tenants} tenants that hang");

    let ended = "SELECT count(*) FROM attempts WHERE outcome <> 'success'";
    assert_eq!(system.count(ended).await, 0, "no hanging attempt has ended yet");
    assert!(metric(ops, HELD).await >= 100.0);
    let waiting = system.count("SELECT count(*) FROM held_jobs WHERE reason = 'slow'").await;
    assert!(waiting >= held, "{waiting} wait in the ledger");
    let posts = hangs.received().len();
    assert!(posts <= most, "{posts} requests, more than the shares of all lanes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_receiver_does_not_hold_up_another_tenant() {
    let (slots, most) = ((32, 8), 32 / 8 + 8 / 4);
    holds_up_nobody(Hanging { tenants: 1, webhooks: 1, events: 400, slots, most, held: 300, is_known: true }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_dead_webhooks_of_one_tenant_do_not_hold_up_another_tenant() {
    let (slots, most) = ((64, 16), 64 / 4 + 32 / 8 + 8 / 4);
    holds_up_nobody(Hanging { tenants: 1, webhooks: 200, events: 3, slots, most, held: 0, is_known: false }).await;
}

/// Receivers fail by platforms: their webhooks' shares are many times all slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_platform_of_many_tenants_that_hangs_does_not_hold_up_another_tenant() {
    let (slots, most) = ((64, 16), 64 + 32 + 16);
    holds_up_nobody(Hanging { tenants: 40, webhooks: 2, events: 5, slots, most, held: 0, is_known: true }).await;
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
