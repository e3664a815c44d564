//! Held jobs outlive a database server.

use std::{collections::HashSet, time::Duration};

use end_to_end::{
    history::{held, made},
    receiver::{Receiver, always},
    servers::{PrivateServers, Server},
    system::{Options, Service, TestSystem},
    wait::until,
};
use uuid::Uuid;

const WEBHOOKS: usize = 4;
const EACH: usize = 200;
const LONG: Duration = Duration::from_secs(90);

/// The server dies while jobs are being published again, and while attempts are being recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_arrives_although_the_database_dies_in_the_middle() {
    let servers = PrivateServers::borrow().await;
    let options =
        Options { servers: Some(servers.servers().clone()), ..Options::with([("API__RECOVER_PER_SECOND", "40")]) };
    let system = TestSystem::serving(options, [Service::Api]).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let admin = system.admin(tenant).await;
    for number in 0..WEBHOOKS {
        let webhook = admin.create(&receiver.url(&format!("/{number}")), &["quote.closed"]).await;
        made(&system, tenant, &webhook.id, EACH, "'pending'").await;
        held(&system, &webhook.id).await;
    }
    system.start(Service::Ingest).await;
    system.start(Service::Dispatcher).await;
    receiver.wait_for(WEBHOOKS * EACH / 4, LONG).await;
    servers.kill(Server::Postgres);
    assert!(receiver.arrived() < WEBHOOKS * EACH, "some are left");
    servers.restart(Server::Postgres);
    let done = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
    until("all succeed", LONG, || async { system.count(done).await == (WEBHOOKS * EACH) as i64 }).await;
    let ids: HashSet<_> =
        receiver.received().iter().map(|one| one.header("x-service-webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), WEBHOOKS * EACH);
    let left = "SELECT (SELECT count(*) FROM held_jobs) + (SELECT count(*) FROM held_webhooks)";
    until("nothing is held", LONG, || async { system.count(left).await == 0 }).await;
}
