//! Messages whose properties RabbitMQ accepts, and client libraries do not expect.
use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    odd_publisher::{OddProperties, OddPublisher, TEXT_PROPERTIES, long, short},
    processes::Process,
    proxy::{Mode, Proxy},
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem},
    wait::SOON,
};

/// The maximum time until everything behind such a message is delivered.
const DEADLINE: Duration = Duration::from_secs(10);
/// The frame size that RabbitMQ proposes, without the frame's own bytes and those before the headers.
const LARGEST_HEADERS: usize = 131_072 - 8 - 14 - 4;

/// An entry of a table: its name, the type of its value, and the value.
fn entry(name: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    [&short(name)[..], &[tag], value].concat()
}

fn of_size(bytes: usize) -> Vec<u8> {
    entry(b"stack", b'S', &long(&vec![b'x'; bytes - 11]))
}

fn odd_headers() -> Vec<(&'static str, Vec<u8>)> {
    let latin = entry(b"caf\xe9", b'S', &long(b"caf\xe9"));
    let nested = |tag, depth| (0..depth).fold(Vec::new(), |inner, _| entry(b"", tag, &long(&inner)));
    let array = [&[b'F'][..], &long(&latin), b"V"].concat();
    vec![
        ("a name", latin.clone()),
        ("a name in a table", entry(b"table", b'F', &long(&latin))),
        ("a name in an array", entry(b"array", b'A', &long(&array))),
        ("an empty name", entry(b"", b'V', b"")),
        ("a trace", entry(b"traceparent", b'S', &long(b"\xff\xfe"))),
        ("numbers", [entry(b"d", b'D', b"\xff\xff\xff\xff\xff"), entry(b"T", b'T', &[0xff; 8])].concat()),
        ("bytes", entry(b"x", b'x', &long(b"\xff"))),
        ("depth", nested(b'F', 10_000)),
        ("40 KiB", of_size(40 * 1024)),
        ("the largest headers", of_size(LARGEST_HEADERS)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_with_odd_properties_are_delivered_with_those_behind_them() {
    let system = TestSystem::running(Options::default()).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let mut publisher = OddPublisher::connect(&system.amqp_url);
    let texts = TEXT_PROPERTIES.map(|(what, bit)| (what, OddProperties::text(bit, b"caf\xe9 \xff\xfe")));
    let headers = odd_headers().into_iter().map(|(what, table)| (what, OddProperties::headers(&table)));
    let exchange = &system.names.events_exchange;
    let mut published = 0;
    for (what, properties) in texts.into_iter().chain(headers) {
        let event = || Event::now(EventType::QuoteClosed, tenant);
        publisher.publish(exchange, b"quote.closed", &properties, &event().to_message());
        // A body without a byte: no event.
        publisher.publish(exchange, b"quote.closed", &properties, b"");
        system.upstream.publish(&std::array::from_fn::<_, 5, _>(|_| event())).await;
        published += 6;
        let delivered = receiver.try_wait_until(DEADLINE, |received| received.len() == published).await;
        assert!(delivered.is_ok(), "{what}: {} of {published} were delivered", receiver.received().len());
    }
    let odd = u32::try_from(published / 6).unwrap();
    system.upstream.wait_ready(&system.names.rejected(), odd, DEADLINE).await;
    assert_eq!(system.upstream.ready(&system.names.events()).await, 0);
}

/// The deliveries of a message, of 1,000 that the broker makes, before ingest gets it.
const IN_VAIN: usize = 980;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_nobody_can_read_is_parked_by_the_broker_alone() {
    const TEXT: &str = "nobody can read this";
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Dispatcher]).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let names = &system.names;
    let unreadable = Event::closed(tenant, 1).remove(0).with_data(format!(r#"{{"note":"{TEXT}"}}"#));
    system.upstream.publish(std::slice::from_ref(&unreadable)).await;
    system.upstream.deliver_in_vain(&names.events(), IN_VAIN).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    proxy.set(Mode::EndAt(TEXT));
    let ingest = Process::spawn("event-ingest", &system.with(&[("BROKER__URL", &url)]));
    let others = Event::closed(tenant, 19);
    system.upstream.publish(&others).await;
    receiver.wait_for(others.len(), SOON).await;
    system.upstream.wait_ready(&names.unreadable(), 1, SOON).await;
    for queue in [names.events(), names.rejected(), names.dead()] {
        assert_eq!(system.upstream.ready(&queue).await, 0, "{queue}");
    }
    let parked = system.upstream.take(&names.unreadable()).await.unwrap();
    assert_eq!(parked.delivery.data, unreadable.to_message());
    assert_eq!(ingest.terminate().await.code(), Some(0));
}
