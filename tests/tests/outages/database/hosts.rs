//! Several hosts in the database's URL, of which one has lost its power: connections are accepted, and nobody answers.

use std::time::Duration;

use end_to_end::{
    events::Event,
    proxy::{Mode, Proxy},
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem},
    wait::{SOON, until},
};

/// A call on a connection to a host that has fallen silent waits for 20 s, and services try again within 30 s.
const LONG: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_host_is_silent_the_other_one_is_used_from_the_start_and_later() {
    let system = TestSystem::prepared(Options::default()).await;
    let ((first, through), (second, _)) = (Proxy::before(&system.database_url), Proxy::before(&system.database_url));
    first.set(Mode::Stall);
    let hosts = format!("{},{}", first.address, second.address);
    let url = through.replacen(&first.address.to_string(), &hosts, 1);
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.start_with(service, system.settings_with(&[("DATABASE__URL", &url)])).await;
    }
    let Subscriber { tenant, api: admin, receiver, .. } = system.subscriber(always(200)).await;
    let mut expected = 0;
    let mut delivers = async |within| {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        expected += 1;
        receiver.wait_for(expected, within).await;
        until("the API answers", within, || async { admin.get("/api/v1/webhooks/").await.status == 200 }).await;
    };
    delivers(SOON).await;
    second.set(Mode::Stall);
    first.set(Mode::Pass);
    delivers(LONG).await;
}
