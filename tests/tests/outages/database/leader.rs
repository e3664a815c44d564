//! The leader's session lasts for as long as its process can be reached, and not much longer.

use std::{net::SocketAddr, time::Duration};

use end_to_end::{
    proxy::{Mode, Proxy},
    system::{Options, Service, TestSystem, metric},
    wait::{SOON, until},
};

/// The longest time without a leader.
const MINUTE: Duration = Duration::from_secs(60);

async fn leads(ingest: SocketAddr) -> bool {
    metric(ingest, "webhooks_maintenance_leader").await > 0.0
}

/// The leader has nothing to do for an hour. Other processes ask every 5 s whether they may lead.
fn idle() -> Options {
    Options::with([("RECONCILE__INTERVAL", "1h")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leaders_host_vanishes_another_leads_within_a_minute() {
    let system = TestSystem::prepared(idle()).await;
    let (proxy, through) = Proxy::before(&system.database_url);
    let far = system.start_with(Service::Ingest, system.settings_with(&[("DATABASE__URL", &through)])).await;
    until("it leads", SOON, || async { leads(far).await }).await;
    let near = system.start(Service::Ingest).await;
    assert!(!leads(near).await, "there is a leader");
    // Neither side hears that the other one is gone.
    proxy.set(Mode::Stall);
    until("the other one leads", MINUTE, || async { leads(near).await }).await;
    until("the one that vanished has noticed", MINUTE, || async { !leads(far).await }).await;
    proxy.set(Mode::Pass);
    assert!(leads(near).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_nothing_to_do_stays_the_leader() {
    let system = TestSystem::prepared(idle()).await;
    let ingest = system.start(Service::Ingest).await;
    until("it leads", SOON, || async { leads(ingest).await }).await;
    let old = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
               WHERE locktype = 'advisory' AND datname = current_database() \
               AND clock_timestamp() - backend_start > interval '40 seconds'";
    until("its session is forty seconds old", MINUTE * 2, || async {
        assert!(leads(ingest).await);
        system.count(old).await == 1
    })
    .await;
}
