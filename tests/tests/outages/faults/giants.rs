//! Events that are too large to be usable.

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    proxy::Mode,
    receiver::always,
    servers::PrivateServers,
    system::{Options, Service, Subscriber, TestSystem, until_metric},
    wait::SOON,
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties, ErrorKind,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::AMQPValue,
};

use crate::faults::{INGEST, LONG};

const MIB: usize = 1024 * 1024;
/// The local stack's `max_message_size`.
const LIMIT: usize = MIB;
/// How many giants wait.
const GIANTS: u32 = 24;
/// How many of them ingest takes at a time.
const MAX_TAKEN_GIANTS: u32 = 4;
const GIANT: usize = 16 * MIB;
/// The most memory that ingest may take, whatever waits.
const MOST_MEMORY: usize = 200_000_000;

/// Asserts that the broker accepts a message of this size, and none that is larger.
async fn assert_limit(servers: &PrivateServers, most: usize) {
    let publish = async |size: usize| {
        let url = &servers.servers().amqp_url;
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let (body, options) = (vec![b'x'; size], BasicPublishOptions::default());
        channel.basic_publish("".into(), "nowhere".into(), options, &body, BasicProperties::default()).await?.await
    };
    assert!(publish(most).await.unwrap().is_ack());
    let error = publish(most + 1).await.unwrap_err();
    let refused = AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED);
    assert!(matches!(error.kind(), ErrorKind::ProtocolError(error) if *error.kind() == refused), "{error}");
}

/// The local stack's broker refuses giants, until its limit is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giants_that_wait_do_not_fill_the_memory_and_a_small_event_among_them_is_delivered() {
    let servers = PrivateServers::borrow().await;
    assert_limit(&servers, LIMIT).await;
    servers.limit_messages(2 * GIANT);
    {
        let options = servers.options(Options::default());
        let system = TestSystem::serving(options, [Service::Api, Service::Dispatcher]).await;
        let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
        let (proxy, ingest) = Process::start_behind_proxy(INGEST, system.variables.clone()).await;
        let idle = ingest.peak_memory();
        // Ingest cannot finish what it takes.
        proxy.set(Mode::HoldRequests("(publish)"));
        let filler = format!(r#"{{"filler":"{}"}}"#, "x".repeat(GIANT));
        let giant = Event::now(EventType::QuoteClosed, tenant).with_data(filler).to_message();
        for number in 0..GIANTS {
            system.upstream.publish_raw("quote.closed", &giant).await;
            if number == GIANTS / 2 {
                system.upstream.publish(&Event::closed(tenant, 1)).await;
            }
        }
        system.upstream.wait_ready(&system.names.events(), GIANTS + 1 - MAX_TAKEN_GIANTS, LONG).await;
        proxy.set(Mode::Pass);
        system.upstream.wait_ready(&system.names.rejected(), GIANTS, LONG).await;
        receiver.wait_for(1, SOON).await;
        let peak = ingest.peak_memory();
        println!("{GIANTS} giants: peak {} MB, idle {} MB", peak / 1_000_000, idle / 1_000_000);
        assert!(peak < MOST_MEMORY, "{peak} bytes");
        // Counted when the broker's confirms have come.
        until_metric(ingest.ops, r#"webhooks_ingest_events_total{outcome="rejected"}"#, f64::from(GIANTS), SOON).await;
        let parked = system.upstream.take(&system.names.rejected()).await.unwrap();
        let headers = parked.delivery.properties.headers().clone().unwrap();
        let reason = &headers.inner()["x-rejected-reason"];
        assert_eq!(*reason, AMQPValue::LongString("data_too_large".into()));
        assert!(parked.delivery.data == giant, "the body is untouched");
    }
    servers.limit_messages(LIMIT);
}
