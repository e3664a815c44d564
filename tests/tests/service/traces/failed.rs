//! What a collector gets of what went wrong.

use std::collections::BTreeMap;

use end_to_end::processes::free_address;

use super::*;
use crate::traces::{
    collector::{Collector, Seen},
    exported::{PATH_TOKEN, PAYLOAD, QUERY, map, of},
};

/// The attributes of the one span that has this one. Ids are left out.
fn said_of(spans: &[Seen], service: &str, attribute: &str, value: &str) -> BTreeMap<String, String> {
    let found = of(spans, service, attribute, value);
    let [span] = found[..] else { panic!("{found:?} of {spans:?}") };
    assert!(span.is_failed, "{span:?}");
    span.attributes.clone().into_iter().filter(|(name, _)| !name.ends_with(".id")).collect()
}

/// An event that quotes a customer where its type should be, and a receiver that nobody can connect to: the texts of both
/// errors name what a span must not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_and_an_attempt_without_an_answer_tell_a_word_of_few() {
    let collector = Collector::start().await;
    let options = Options { schedule: "1h,2h,3h,4h,5h,6h", settings: vec![collector.endpoint()], ..Options::default() };
    let system = TestSystem::running(options).await;
    let tenant = Uuid::new_v4();
    let port = free_address().port().to_string();
    let url = format!("https://localhost:{port}/{PATH_TOKEN}?{QUERY}");
    system.admin(tenant).await.create(&url, &["quote.closed"]).await;
    let event = Event::now(EventType::QuoteClosed, tenant).with_data(format!(r#"{{"client":"{PAYLOAD}"}}"#));
    let message = String::from_utf8(event.to_message()).unwrap();
    system.upstream.publish_raw("quote.closed", message.as_bytes()).await;
    system.upstream.publish_raw("quote.closed", message.replace("quote.closed", PAYLOAD).as_bytes()).await;
    system.until_count("SELECT count(*) FROM attempts", 1, SOON).await;
    system.upstream.wait_ready(&system.names.rejected(), 1, SOON).await;
    for service in [Service::Dispatcher, Service::Ingest, Service::Api] {
        system.stop(service).await;
    }
    let spans = collector.spans();
    let destination = format!("{}:quote.closed:{}", system.names.events_exchange, system.names.events());
    let rejected = [
        ("messaging.system", "rabbitmq"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", destination.as_str()),
        ("webhooks.event.outcome", "rejected"),
        ("error.type", "invalid_member"),
    ];
    assert_eq!(said_of(&spans, "event-ingest", "webhooks.event.outcome", "rejected"), map(&rejected));
    let attempted = [
        ("http.request.method", "POST"),
        ("server.address", "localhost"),
        ("server.port", port.as_str()),
        ("webhooks.event.type", "quote.closed"),
        ("webhooks.attempt", "1"),
        ("webhooks.outcome", "connect"),
        ("error.type", "connect"),
    ];
    assert_eq!(said_of(&spans, "dispatcher", "webhooks.attempt", "1"), map(&attempted));
    collector.assert_untold(&[PAYLOAD, PATH_TOKEN, QUERY]);
}
