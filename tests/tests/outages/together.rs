//! Several jobs in one message: the outcome of one does not affect the others.

use std::{collections::HashSet, time::Duration};

use domain::{EventType, Job};
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, Reply, always, behaviour},
    servers::PrivateServers,
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually, until},
};
use uuid::Uuid;

/// The deadline for work that keeps the machine busy.
const LONG: Duration = Duration::from_secs(90);

/// The time to the first retry.
const GAP: Duration = Duration::from_secs(60);
const DISPATCHER: &str = "dispatcher";
const WEBHOOKS: usize = 40;
/// Messages per event, of eight jobs each.
const MESSAGES: u32 = 5;

/// So many slots, all of which one tenant may fill. Jobs share messages without high load, too.
fn options(slots: usize) -> Options {
    let settings = [
        ("DISPATCHER__MAX_IN_FLIGHT", slots.to_string()),
        ("DISPATCHER__WEBHOOK_SHARE", "1".to_owned()),
        ("DISPATCHER__TENANT_SHARE", "1".to_owned()),
        ("INGEST__BATCH_ABOVE", "0".to_owned()),
    ];
    let schedule = "60s,5m,15m,1h,4h,12h";
    Options { schedule, timeout: "120s", settings: settings.to_vec(), ..Options::default() }
}

/// Waits until exactly `deliveries` deliveries are in `state`.
async fn wait_for(system: &System, state: &str, deliveries: usize) {
    let count = format!("SELECT count(*) FROM deliveries WHERE state = '{state}'");
    let what = format!("{deliveries} deliveries are {state}");
    eventually(&what, LONG, || async { (system.count(&count).await == deliveries as i64).then_some(()) }).await;
}

/// Waits until the broker has taken the acknowledgements. The ledger shows outcomes before these are even sent.
async fn all_acknowledged_but_one(servers: &PrivateServers, system: &System) {
    let main = system.names.main();
    until("one message is left", LONG, || async { servers.messages(&main) == 1 }).await;
}

/// Registers `WEBHOOKS` webhooks for each tenant and publishes events for them. Their jobs wait, eight to a message.
async fn jobs_wait(system: &System, receiver: &Receiver, tenants: u32, events: u32) {
    system.start(Service::Api).await;
    // The dispatcher declares the queues.
    system.start(Service::Dispatcher).await;
    system.stop(Service::Dispatcher).await;
    system.start(Service::Ingest).await;
    let mut messages = 0;
    for _ in 0..tenants {
        let tenant = Uuid::new_v4();
        let admin = system.admin(tenant).await;
        for number in 0..WEBHOOKS {
            admin.create(&receiver.url(&format!("/{number}")), &["quote.closed"]).await;
        }
        for _ in 0..events {
            system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
            messages += MESSAGES;
            system.upstream.wait_ready(&system.names.main(), messages, LONG).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_hangs_keeps_back_its_message_but_no_other_job_and_a_crash_repeats_only_that_one() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(servers.options(options(128))).await;
    // A fifth fails.
    let status = |path: &str| if path.ends_with(['0', '4']) { 500 } else { 200 };
    let (hangs, fails) = (|path: &str| path == "/7", WEBHOOKS / 5);
    let receiver = Receiver::start(
        &system.ca,
        behaviour(move |one, _| if hangs(&one.path) { Reply::hang() } else { Reply::status(status(&one.path)) }),
    );
    jobs_wait(&system, &receiver, 1, 1).await;
    let mut dispatcher = Process::start(DISPATCHER, &system.variables).await;
    receiver.wait_for(WEBHOOKS, SOON).await;
    wait_for(&system, "succeeded", WEBHOOKS - fails - 1).await;
    wait_for(&system, "retrying", fails).await;
    all_acknowledged_but_one(&servers, &system).await;
    dispatcher.kill();
    system.upstream.wait_ready(&system.names.main(), 1, LONG).await;

    receiver.behave(always(500));
    one_retry_each(&system, &receiver, fails + 1, WEBHOOKS + 1).await;
    assert_eq!(receiver.received().iter().filter(|one| hangs(&one.path)).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_attempts_are_under_way_than_there_are_slots_whatever_a_message_holds() {
    const ATTEMPT: Duration = Duration::from_millis(150);
    for slots in [4, 32] {
        System::prepared(options(slots), async |system| {
            let receiver = Receiver::start(&system.ca, behaviour(|_, _| Reply::ok().after(ATTEMPT)));
            // Two tenants, each of which may fill all slots.
            jobs_wait(&system, &receiver, 2, 1).await;
            system.start(Service::Dispatcher).await;
            let mut received = receiver.wait_for(2 * WEBHOOKS, LONG).await;
            received.sort_by_key(|one| one.at);
            for (before, one) in received.iter().zip(&received[slots..]) {
                assert!(one.at - before.at >= ATTEMPT, "{slots} slots: {} to {}", before.at, one.at);
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_is_told_to_stop_in_the_middle_of_messages_leaves_one_retry_of_each_delivery() {
    const EVENTS: u32 = 10;
    let system = TestSystem::prepared(options(20)).await;
    let receiver = Receiver::start(&system.ca, behaviour(|_, _| Reply::status(500).after(Duration::from_millis(100))));
    jobs_wait(&system, &receiver, 1, EVENTS).await;
    let dispatcher = Process::start(DISPATCHER, &system.variables).await;
    receiver.wait_for(50, SOON).await;
    assert_eq!(dispatcher.terminate().await.code(), Some(0));
    let all = WEBHOOKS * EVENTS as usize;
    let done = system.count("SELECT count(*) FROM attempts").await;
    println!("{done} of {all} attempts were made");
    assert!(done < all as i64, "it was stopped in the middle");
    one_retry_each(&system, &receiver, all, all).await;
}

/// Runs another dispatcher until `all` deliveries have failed once. Asserts that each of them has exactly one retry.
async fn one_retry_each(system: &System, receiver: &Receiver, all: usize, posts: usize) {
    system.start(Service::Dispatcher).await;
    wait_for(system, "retrying", all).await;
    system.stop(Service::Dispatcher).await;
    assert_eq!(receiver.received().len(), posts);
    assert_eq!(system.upstream.ready(&system.names.main()).await, 0);
    let (mut retries, mut deliveries) = (0, HashSet::new());
    while let Some(message) = system.upstream.take(&system.names.retry(GAP)).await {
        let jobs = Job::parse(&message.delivery.data).unwrap();
        let [Job { delivery, attempt: 2 }] = jobs[..] else { panic!("a message of {jobs:?}") };
        retries += 1;
        deliveries.insert(delivery);
    }
    assert_eq!((retries, deliveries.len()), (all, all));
}
