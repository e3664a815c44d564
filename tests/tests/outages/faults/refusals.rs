//! A queue that takes no messages, or does not answer, while the other queues are healthy.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, always},
    servers::PrivateServers,
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use uuid::Uuid;

use crate::faults::{DISPATCHER, INGEST, LONG, settings};

/// How many events are delivered in each test.
const HEALTHY: u32 = 20;
/// How many messages are for the queue that refuses.
const OTHERS: u32 = 10;
/// Limits a queue to one message. The broker decides when to refuse: more than one may be taken.
const POLICY: &str = r#"{"max-length": 1, "overflow": "reject-publish"}"#;
/// How many publishes fail before a test looks at anything.
const SEVERAL: f64 = 4.0;

fn options(servers: &PrivateServers) -> Options {
    servers.options(Options { schedule: "60s", settings: settings(), ..Options::default() })
}

fn limit(servers: &PrivateServers, queue: &str) {
    servers.rabbitmqctl(&["set_policy", queue, &format!("^{}$", queue.replace('.', "\\.")), POLICY]);
}

fn lift(servers: &PrivateServers, queue: &str) {
    servers.rabbitmqctl(&["clear_policy", queue]);
}

/// Suspends or resumes the broker's process of a queue. A suspended queue is like one without a leader.
fn tell(servers: &PrivateServers, queue: &str, what: &str) {
    servers.rabbitmqctl(&["eval", &format!("sys:{what}('%2F_{queue}').")]);
}

async fn wait_until_refused(process: &Process) {
    until("several tries have failed", LONG, || async {
        metric(process.ops, "webhooks_broker_publish_failures_total").await >= SEVERAL
    })
    .await;
}

async fn no_reconnects(process: &Process) {
    assert_eq!(metric(process.ops, "webhooks_broker_reconnects_total").await, 0.0, "{}", process.logged());
}

/// Registers a receiver that answers 200. Returns it with its tenant.
async fn healthy(system: &System) -> (Receiver, Uuid) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    (receiver, tenant)
}

/// An ingest and a dispatcher as processes, and the name of the queue of rejected events.
struct Rejecting {
    dispatcher: Process,
    ingest: Process,
    rejected: String,
}

impl Rejecting {
    async fn start(system: &System) -> Self {
        system.start(Service::Api).await;
        let dispatcher = Process::start(DISPATCHER, &system.variables).await;
        let ingest = Process::start(INGEST, &system.variables).await;
        Self { dispatcher, ingest, rejected: system.names.rejected() }
    }
}

/// Kills a process once it has acknowledged all but `messages` messages of a queue. Waits until these are ready again.
async fn left_by(servers: &PrivateServers, system: &System, mut process: Process, queue: &str, messages: u32) {
    until("the rest is acknowledged", LONG, || async { servers.messages(queue) == messages }).await;
    process.kill();
    system.upstream.wait_ready(queue, messages, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_of_rejected_events_or_retries_holds_up_nothing_else_and_gets_each_message_once() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let Rejecting { dispatcher, ingest, rejected } = Rejecting::start(&system).await;
    let (deliveries, retries) = (system.names.main(), system.retry_queues().remove(0));
    limit(&servers, &rejected);
    let (receiver, tenant) = healthy(&system).await;
    for number in 0..HEALTHY {
        if number < OTHERS {
            system.upstream.publish_raw("quote.closed", b"no event").await;
        }
        system.upstream.publish(&Event::closed(tenant, 1)).await;
    }
    receiver.wait_for(HEALTHY as usize, SOON).await;
    wait_until_refused(&ingest).await;
    no_reconnects(&ingest).await;
    let taken = system.upstream.ready(&rejected).await;
    assert!((1..OTHERS).contains(&taken), "{taken} were taken");
    left_by(&servers, &system, ingest, &system.names.events(), OTHERS - taken).await;
    lift(&servers, &rejected);
    let _again = Process::start(INGEST, &system.variables).await;
    system.upstream.wait_ready(&rejected, OTHERS, LONG).await;
    assert_eq!(metric(dispatcher.ops, "webhooks_jobs_skipped_total").await, 0.0, "no job came twice");
    assert_eq!(receiver.received().len(), HEALTHY as usize);

    limit(&servers, &retries);
    let (failing, other) = (Receiver::start(&system.ca, always(500)), Uuid::new_v4());
    system.admin(other).await.create(&failing.url("/"), &["quote.closed"]).await;
    // The queue refuses from the third message on. Those that are published together before it says so are taken.
    for number in 1..=2 {
        system.upstream.publish(&Event::closed(other, 1)).await;
        failing.wait_for(number, SOON).await;
        system.upstream.wait_ready(&retries, u32::try_from(number).unwrap(), SOON).await;
    }
    let tenants = (0..HEALTHY).flat_map(|number| if number < OTHERS - 2 { vec![other, tenant] } else { vec![tenant] });
    system.upstream.publish(&tenants.map(|to| Event::now(EventType::QuoteClosed, to)).collect::<Vec<_>>()).await;
    receiver.wait_for(2 * HEALTHY as usize, SOON).await;
    failing.wait_for(OTHERS as usize, SOON).await;
    wait_until_refused(&dispatcher).await;
    no_reconnects(&dispatcher).await;
    let taken = system.upstream.ready(&retries).await;
    assert!((1..OTHERS).contains(&taken), "{taken} were taken");
    lift(&servers, &retries);
    system.upstream.wait_ready(&retries, OTHERS, LONG).await;
    left_by(&servers, &system, dispatcher, &deliveries, 0).await;
    assert_eq!(system.upstream.ready(&retries).await, OTHERS, "no retry is there twice");
    assert_eq!(failing.received().len(), OTHERS as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_answers_nothing_costs_no_connection_and_gets_no_copies() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let Rejecting { dispatcher, ingest, rejected } = Rejecting::start(&system).await;
    let (receiver, tenant) = healthy(&system).await;
    // The broker waits for a queue at a channel's first message for it, and does nothing else meanwhile.
    system.upstream.publish_raw("quote.closed", b"no event").await;
    system.upstream.wait_ready(&rejected, 1, SOON).await;
    let shown = "webhooks_queue_depth{queue=\"rejected\"}";
    until_metric(dispatcher.ops, shown, 1.0, LONG).await;
    tell(&servers, &rejected, "suspend");
    for _ in 1..OTHERS {
        system.upstream.publish_raw("quote.closed", b"no event").await;
    }
    // This takes three times as long as a confirm may.
    for number in 1..=HEALTHY {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        receiver.wait_for(number as usize, SOON).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    no_reconnects(&ingest).await;
    assert_eq!(metric(dispatcher.ops, shown).await, 1.0, "what nobody can count is not none");
    tell(&servers, &rejected, "resume");
    system.upstream.wait_ready(&rejected, OTHERS, LONG).await;
    left_by(&servers, &system, ingest, &system.names.events(), 0).await;
    assert_eq!(system.upstream.ready(&rejected).await, OTHERS, "no copies");
    assert_eq!(metric(dispatcher.ops, "webhooks_jobs_skipped_total").await, 0.0, "no job came twice");

    // The same if nothing else is published.
    let ingest = Process::start(INGEST, &system.variables).await;
    system.upstream.publish_raw("quote.closed", b"no event").await;
    system.upstream.wait_ready(&rejected, OTHERS + 1, SOON).await;
    tell(&servers, &rejected, "suspend");
    system.upstream.publish_raw("quote.closed", b"no event").await;
    until("a publish is given up", LONG, || async {
        metric(ingest.ops, "webhooks_broker_publish_failures_total").await >= 1.0
    })
    .await;
    no_reconnects(&ingest).await;
    tell(&servers, &rejected, "resume");
    until("it is there", LONG, || async { system.upstream.ready(&rejected).await > OTHERS + 1 }).await;
    let copies = system.upstream.ready(&rejected).await - OTHERS - 2;
    assert!(copies <= 1, "{copies} copies: one at the most for each ten confirm timeouts");
}
