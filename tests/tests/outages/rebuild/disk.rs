//! The broker loses its disk.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, Reply, behaviour},
    servers::{PrivateServers, Server},
    system::{Options, Service, System, TestSystem},
    wait::eventually,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::rebuild::{LONG, again, metric};

const ALL: usize = 3_000;
const THIRD: usize = ALL / 3;
/// The second retry waits for 60 s in a queue of its own. With less left, it may take hops of 25 s and 10 s.
const SCHEDULE: &str = "10s,70s,95s";
/// How late a retry may be: the shortest step, and what a busy machine adds.
const LATE: Duration = Duration::from_secs(10 + 45);

fn event(tenant: Uuid, number: usize) -> Event {
    Event::now(EventType::QuoteClosed, tenant).with_data(format!(r#"{{"number":{number},"fails":{}}}"#, number < THIRD))
}

/// Fails the first two attempts of each event that says so.
fn failing_twice(system: &System) -> Receiver {
    let fails = |body: &[u8]| String::from_utf8_lossy(body).contains(r#""fails":true"#);
    let reply = move |fails: bool| if fails { Reply::status(500) } else { Reply::ok() };
    Receiver::start(&system.ca, behaviour(move |request, nth| reply(nth <= 2 && fails(&request.body))))
}

fn options(servers: &PrivateServers) -> Options {
    let options = Options::with([("RECONCILE__INTERVAL", "500ms"), ("BROKER__CONFIRM_TIMEOUT", "60s")]);
    servers.options(Options { schedule: SCHEDULE, timeout: "30s", ..options })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_broker_loses_its_disk_in_the_middle_of_3000_deliveries_all_arrive_on_their_schedule() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(options(&servers)).await;
    let tenant = Uuid::new_v4();
    let receiver = failing_twice(&system);
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    system.start(Service::Ingest).await;
    for _ in 0..2 {
        system.start(Service::Dispatcher).await;
    }
    let began = Instant::now();
    let note = |what: &str| println!("{what} after {:.1} s", began.elapsed().as_secs_f64());
    // A third fails twice and waits, a third succeeds, and the last third is not tried yet.
    let numbered = |range: std::ops::Range<usize>| range.map(|n| event(tenant, n)).collect::<Vec<_>>();
    system.upstream.publish(&numbered(0..2 * THIRD)).await;
    receiver.wait_for(3 * THIRD, LONG).await;
    note("a third has failed twice");
    system.stop(Service::Dispatcher).await;
    system.upstream.publish(&numbered(2 * THIRD..ALL)).await;
    system.until_count("SELECT count(*) FROM deliveries", ALL as i64, LONG).await;
    for service in [Service::Ingest, Service::Api] {
        system.stop(service).await;
    }
    let waiting =
        system.sql("SELECT id::text, next_attempt_at FROM deliveries WHERE state = 'retrying' AND attempts = 2").await;
    let due: HashMap<String, OffsetDateTime> = waiting.iter().map(|row| (row.get(0), moment(row.get(1)))).collect();
    assert_eq!(due.len(), THIRD);
    let (before, lost_at) = (system.generations().await, OffsetDateTime::now_utc());
    note("all is stopped");
    servers.lose_brokers_disk();
    servers.restart(Server::Rabbitmq);
    let back = Instant::now();
    let soonest = due.values().min().unwrap();
    note("the broker is back");
    println!("the first retry is due in {}", *soonest - OffsetDateTime::now_utc());
    // It publishes the jobs that dispatchers hold, as so many come for one webhook.
    system.start(Service::Api).await;
    let mut ingests = Vec::new();
    for _ in 0..2 {
        ingests.push(system.start(Service::Ingest).await);
        system.start(Service::Dispatcher).await;
    }
    let tried = "SELECT count(*) FROM deliveries WHERE attempts > 0";
    eventually("all are tried", 3 * LONG, || async { (system.count(tried).await == ALL as i64).then_some(()) }).await;
    println!("what had not been tried has arrived {:.1} s after the broker was back", back.elapsed().as_secs_f64());
    let done = "SELECT count(*) FROM deliveries WHERE state = 'succeeded'";
    eventually("all succeed", LONG * 2, || async { (system.count(done).await == ALL as i64).then_some(()) }).await;

    judge(&receiver, &due, lost_at);
    let (mut jobs, mut leaders) = (0.0, 0.0);
    for ingest in ingests {
        jobs += again(ingest, "broker_lost").await;
        leaders += metric(ingest, "webhooks_maintenance_leader").await;
    }
    assert_eq!((jobs, leaders), ((ALL - THIRD) as f64, 1.0));
    let after = system.generations().await;
    assert!(after.len() == 1 && before.len() == 1 && after != before);
}

/// Asserts that after the loss every retry is on its schedule, and everything that waited came exactly once.
fn judge(receiver: &Receiver, due: &HashMap<String, OffsetDateTime>, lost_at: OffsetDateTime) {
    // Requests before the loss do not count: a busy machine may have repeated some.
    let (mut posts, mut lateness): (HashMap<String, usize>, Vec<Duration>) = (HashMap::new(), Vec::new());
    for one in receiver.received().iter().filter(|one| one.at > lost_at) {
        let id = one.header("x-service-webhook-id").unwrap().to_owned();
        if let Some(due) = due.get(&id) {
            let late = one.at - *due;
            // `RetrySchedule::early_tolerance`: a wait that fits no gap is made of shorter ones.
            assert!(late >= time::Duration::milliseconds(-250), "{id} came {late} after it was due");
            lateness.push(late.try_into().unwrap_or_default());
        }
        *posts.entry(id).or_default() += 1;
    }
    lateness.sort_unstable();
    println!(
        "retries late: p50 {:?}, p99 {:?}, max {:?}",
        lateness[THIRD / 2],
        lateness[THIRD * 99 / 100],
        lateness[THIRD - 1]
    );
    assert!(lateness[THIRD - 1] < LATE);
    assert_eq!(posts.len(), ALL - THIRD, "everything that waited, and nothing else");
    assert_eq!(posts.values().filter(|posts| **posts > 1).count(), 0, "each attempt is made once");
}

fn moment(at: std::time::SystemTime) -> OffsetDateTime {
    at.into()
}
