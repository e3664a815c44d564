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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_nothing_to_do_stays_the_leader_until_its_host_vanishes() {
    // It has nothing to do for an hour. Other processes ask every 5 s whether they may lead.
    let system = TestSystem::prepared(Options::with([("RECONCILE__INTERVAL", "1h")])).await;
    let (proxy, through) = Proxy::before(&system.database_url);
    let far = system.start_with(Service::Ingest, system.settings_with(&[("DATABASE__URL", &through)])).await;
    until("it leads", SOON, || async { leads(far).await }).await;
    let near = system.start(Service::Ingest).await;
    // The server ends a session that is idle for 20 s.
    let old = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
               WHERE locktype = 'advisory' AND datname = current_database() \
               AND clock_timestamp() - backend_start > interval '25 seconds'";
    until("its session is older", MINUTE, || async {
        assert!(leads(far).await && !leads(near).await);
        system.count(old).await == 1
    })
    .await;
    // Neither side hears that the other one is gone.
    proxy.set(Mode::Stall);
    until("the other one leads", MINUTE, || async { leads(near).await }).await;
    until("the one that vanished has noticed", MINUTE, || async { !leads(far).await }).await;
    proxy.set(Mode::Pass);
    assert!(leads(near).await);
}
