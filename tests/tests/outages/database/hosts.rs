//! Several hosts in the database's URL, of which one has lost its power: connections are accepted, and nobody answers.

use std::{net::SocketAddr, time::Duration};

use end_to_end::{
    api::Api,
    events::Event,
    proxy::{Mode, Proxy},
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem},
    wait::SOON,
};
use service_kit::Settings;
use tokio::net::TcpListener;
use uuid::Uuid;

/// A call on a connection to a host that has fallen silent waits for 20 s, and services try again within 30 s.
const LONG: Duration = Duration::from_secs(90);
const SERVICES: [Service; 3] = [Service::Api, Service::Ingest, Service::Dispatcher];

/// Starts all services with these hosts in the database's URL. `through` is the URL with `proxy` as its only host.
async fn start(system: &System, through: &str, proxy: &Proxy, hosts: [SocketAddr; 2]) {
    let hosts = hosts.map(|host| host.to_string()).join(",");
    let mut variables = system.variables.clone();
    variables.insert("WEBHOOKS__DATABASE__URL".to_owned(), through.replacen(&proxy.address.to_string(), &hosts, 1));
    let settings = Settings::from_sources(None, variables).unwrap();
    for service in SERVICES {
        system.start_with(service, settings.clone()).await;
    }
}

/// Registers a webhook through the API.
async fn subscribed(system: &System, tenant: Uuid) -> (Api, Receiver) {
    let (admin, receiver) = (system.admin(tenant).await, Receiver::start(&system.ca, always(200)));
    admin.create(&receiver.url("/hook"), &["quote.closed"]).await;
    (admin, receiver)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_first_host_is_silent_all_services_use_the_second() {
    let system = TestSystem::prepared(Options::default()).await;
    // The system accepts connections, and nobody answers them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (second, through) = Proxy::before(&system.database_url);
    start(&system, &through, &second, [silent.local_addr().unwrap(), second.address]).await;
    let tenant = Uuid::new_v4();
    let (_admin, receiver) = subscribed(&system, tenant).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_host_in_use_falls_silent_the_other_one_is_used() {
    let system = TestSystem::prepared(Options::default()).await;
    let ((first, through), (second, _)) = (Proxy::before(&system.database_url), Proxy::before(&system.database_url));
    start(&system, &through, &first, [first.address, second.address]).await;
    let tenant = Uuid::new_v4();
    let (admin, receiver) = subscribed(&system, tenant).await;
    let mut expected = 0;
    let mut delivers = async |within| {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        expected += 1;
        receiver.wait_for(expected, within).await;
        end_to_end::wait::until("the API answers", within, || async {
            admin.get("/api/v1/webhooks/").await.status == 200
        })
        .await;
    };
    delivers(SOON).await;
    first.set(Mode::Stall);
    delivers(LONG).await;
    second.set(Mode::Stall);
    first.set(Mode::Pass);
    delivers(LONG).await;
}
