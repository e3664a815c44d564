//! Several addresses of the broker, as a cluster has them.

use end_to_end::{
    events::Event,
    proxy::{Mode, Proxy},
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem},
    wait::SOON,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_address_works_everything_does() {
    let system = TestSystem::prepared(Options::default()).await;
    let ((first, one), (second, other)) = (Proxy::before(&system.amqp_url), Proxy::before(&system.amqp_url));
    let settings = system.settings_with(&[("BROKER__URL", &format!("{one},{other}"))]);
    // Makes the queues. Nobody makes them while half of the nodes are silent: those may have them.
    system.start(Service::Ingest).await;
    system.stop(Service::Ingest).await;
    // Silent, so that its share of the time passes first.
    first.set(Mode::Stall);
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.start_with(service, settings.clone()).await;
    }
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let mut expected = 0;
    let mut delivers = async || {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        expected += 1;
        receiver.wait_for(expected, SOON).await;
    };
    delivers().await;

    first.set(Mode::Refuse);
    delivers().await;
    first.set(Mode::Pass);
    second.set(Mode::Refuse);
    delivers().await;
    second.set(Mode::Pass);
    first.set(Mode::Refuse);
    delivers().await;
    drop(first);
    delivers().await;
}
