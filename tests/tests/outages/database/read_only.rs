//! A primary that was demoted: it answers, but takes no writes.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use end_to_end::{
    api::Api,
    events::Event,
    receiver::always,
    servers::PrivateServers,
    system::{Options, Service, Subscriber, System, TestSystem, wait_ready},
    wait::{SOON, eventually, until},
};

/// How many events are published before the demotion, and how many during it.
const EVENTS: usize = 20;
/// Services that wait for the database try again within 30 s.
const LONG: Duration = Duration::from_secs(90);

/// Makes the server read-only, for open and for new sessions.
async fn demote(system: &System) {
    system.sql("ALTER SYSTEM SET default_transaction_read_only = on").await;
    system.sql("SELECT pg_reload_conf()").await;
}

async fn promote(system: &System) {
    system.sql("ALTER SYSTEM RESET default_transaction_read_only").await;
    system.sql("SELECT pg_reload_conf()").await;
}

/// The server's process ids of the services' sessions with this database.
async fn sessions(system: &System) -> BTreeSet<i32> {
    let select = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND application_name IN ('api-service', 'event-ingest', 'dispatcher')";
    system.sql(select).await.iter().map(|row| row.get(0)).collect()
}

async fn says_read_only(ops: SocketAddr) {
    eventually("it is not ready, because the database is read-only", SOON, || async {
        let ready = Api { address: ops, session: None }.get("/readyz").await;
        (ready.status == 503 && ready.json()["checks"]["database"] == "read-only").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_database_is_not_ready_its_connections_are_closed_and_nothing_is_lost() {
    let servers = PrivateServers::borrow().await;
    let options = Options::with([("RECONCILE__INTERVAL", "100ms")]);
    let system = TestSystem::prepared(servers.options(options)).await;
    let mut services = Vec::new();
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        services.push(system.start(service).await);
    }
    let Subscriber { tenant, api: admin, receiver, .. } = system.subscriber(always(200)).await;
    let events = || Event::closed(tenant, EVENTS);
    system.upstream.publish(&events()).await;
    receiver.wait_for(EVENTS, SOON).await;
    let before = sessions(&system).await;
    assert!(before.len() >= 4, "each has a pool, and the leader a connection: {before:?}");
    demote(&system).await;
    for ops in &services {
        says_read_only(*ops).await;
    }
    until("every connection to it is closed", LONG, || async { sessions(&system).await.is_disjoint(&before) }).await;
    assert_eq!(admin.get("/api/v1/webhooks/").await.status, 503);
    system.upstream.publish(&events()).await;
    promote(&system).await;
    for ops in &services {
        wait_ready(*ops).await;
    }
    receiver.wait_for(EVENTS * 2, LONG).await;
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", 2 * EVENTS as i64, LONG).await;
    until("somebody leads again", LONG, || async {
        end_to_end::system::metric(services[1], "webhooks_maintenance_leader").await > 0.0
    })
    .await;
}
