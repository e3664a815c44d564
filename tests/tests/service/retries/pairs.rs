//! Two dispatchers get the same attempt. Afterwards there is exactly one job of the next attempt.

use std::{net::SocketAddr, time::Duration};

use domain::Job;
use end_to_end::{
    events::Event,
    history::made,
    proxy::{Mode, Proxy},
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::retries::LONG;

/// Part of the name of the connections on which the service publishes. Acknowledgements go over others.
const PUBLISHING: &str = "(publish)";
const RECORDED: &str = "SELECT count(*) FROM attempts";

/// The next attempt is far away, so that its job stays where the test can count it.
fn options() -> Options {
    // Lost-job detection finds nothing meanwhile.
    Options { schedule: "10m,20m", timeout: "20s", ..Options::with([("RECONCILE__GRACE", "1h")]) }
}

/// The attempt of the first dispatcher, which reaches the broker through a proxy.
struct First {
    receiver: Receiver,
    /// Lets the first request be answered, and the later ones.
    answers: [CancellationToken; 2],
    proxy: Proxy,
    ops: SocketAddr,
}

impl First {
    /// Publishes an event and waits until its first request has arrived. Requests are answered with 500, once the first and
    /// the later ones are to be answered. Nothing is left of another case.
    async fn attempting(system: &System) -> Self {
        for table in ["attempts", "deliveries"] {
            system.sql(&format!("DELETE FROM {table}")).await;
        }
        let (proxy, url) = Proxy::before(&system.amqp_url);
        let settings = system.settings_with(&[("BROKER__URL", &url)]);
        let ops = system.start_with(Service::Dispatcher, settings).await;
        let answers: [CancellationToken; 2] = Default::default();
        let fails = answers.clone();
        let fails = behaviour(move |_, nth| Reply::status(500).once(&fails[usize::from(nth > 1)]));
        let Subscriber { tenant, receiver, .. } = system.subscriber(fails).await;
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        receiver.wait_for(1, SOON).await;
        Self { receiver, answers, proxy, ops }
    }

    /// The first one has recorded its attempt and lost its connection. Another one gets the job and makes no attempt.
    async fn meets_another_too_late(&self, system: &System) {
        let second = system.start(Service::Dispatcher).await;
        wait_idle(system, &[second]).await;
        self.join(system, second).await;
        only_the_next_job_is_left(system).await;
        assert_eq!(self.receiver.received().len(), 1);
    }

    /// Has the first request answered, or the later ones, and waits until the attempt is recorded.
    async fn answered(&self, system: &System, which: usize) {
        self.answers[which].cancel();
        wait_recorded(system).await;
    }

    /// Lets connections pass again, and waits until both dispatchers are idle.
    async fn join(&self, system: &System, second: SocketAddr) {
        self.proxy.set(Mode::Pass);
        wait_idle(system, &[self.ops, second]).await;
    }
}

async fn wait_idle(system: &System, dispatchers: &[SocketAddr]) {
    for ops in dispatchers {
        until("no job is under way", LONG, || async {
            let idle = metric(*ops, "webhooks_attempts_in_flight").await == 0.0;
            idle && system.upstream.ready(&system.names.main()).await == 0
        })
        .await;
    }
}

async fn wait_recorded(system: &System) {
    system.until_count(RECORDED, 1, SOON).await;
}

/// Asserts that the queues hold the job of the second attempt once, and nothing else.
async fn only_the_next_job_is_left(system: &System) {
    system.stop(Service::Dispatcher).await;
    let mut jobs = Vec::new();
    for queue in system.queues() {
        let messages = system.upstream.take_all(&queue).await;
        jobs.extend(messages.iter().flat_map(|message| Job::parse(&message.data).unwrap()));
    }
    let delivery: Uuid = system.sql("SELECT id::text FROM deliveries").await[0].get::<_, String>(0).parse().unwrap();
    assert_eq!(jobs, [Job { delivery: delivery.into(), attempt: 2 }]);
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'retrying' AND attempts = 1").await, 1);
    assert_eq!(system.count(RECORDED).await, 1);
}

/// The first dispatcher loses its connection during the attempt, and the second one makes the same attempt. Requests are
/// answered in this order.
async fn both_attempt(system: &System, order: [usize; 2]) {
    let first = First::attempting(system).await;
    let second = system.start(Service::Dispatcher).await;
    first.proxy.set(Mode::Refuse);
    first.receiver.wait_for(2, LONG).await;
    first.answered(system, order[0]).await;
    first.answers[order[1]].cancel();
    wait_idle(system, &[second]).await;
    first.join(system, second).await;
    only_the_next_job_is_left(system).await;
}

async fn the_attempt_is_recorded_before_another_one_takes_the_job(system: &System) {
    let first = First::attempting(system).await;
    first.proxy.set(Mode::Refuse);
    first.answered(system, 0).await;
    first.meets_another_too_late(system).await;
}

async fn the_connection_is_lost_between_the_record_and_the_retry(system: &System) {
    let first = First::attempting(system).await;
    first.proxy.set(Mode::HoldRequests(PUBLISHING));
    first.answered(system, 0).await;
    first.proxy.set(Mode::Refuse);
    first.meets_another_too_late(system).await;
}

async fn the_job_comes_back_to_its_attempt(system: &System) {
    let first = First::attempting(system).await;
    first.proxy.cut();
    let duplicate = r#"webhooks_jobs_skipped_total{reason="duplicate"}"#;
    until_metric(first.ops, duplicate, 1.0, SOON).await;
    first.answered(system, 0).await;
    wait_idle(system, &[first.ops]).await;
    only_the_next_job_is_left(system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_retry_follows_whenever_the_connection_is_lost_and_whoever_records_the_attempt() {
    let system = &*TestSystem::serving(options(), [Service::Api, Service::Ingest]).await;
    both_attempt(system, [0, 1]).await;
    both_attempt(system, [1, 0]).await;
    the_attempt_is_recorded_before_another_one_takes_the_job(system).await;
    the_connection_is_lost_between_the_record_and_the_retry(system).await;
    the_job_comes_back_to_its_attempt(system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_pair_of_jobs_that_two_dispatchers_attempt_one_retry_is_left() {
    // Each dispatcher takes one job.
    let mut options = options();
    options.settings.push(("DISPATCHER__MAX_IN_FLIGHT", "1".to_owned()));
    let system = TestSystem::serving(options, [Service::Api]).await;
    let Subscriber { tenant, receiver, webhook, .. } =
        system.subscriber(behaviour(|_, _| Reply::status(500).after(Duration::from_secs(3)))).await;
    made(&system, tenant, &webhook, 1, "'pending'").await;
    system.sql("UPDATE deliveries SET attempts = 0, first_failed_at = NULL").await;
    let id: Uuid = system.sql("SELECT id::text FROM deliveries").await[0].get::<_, String>(0).parse().unwrap();
    let both = [system.start(Service::Dispatcher).await, system.start(Service::Dispatcher).await];
    let job = Job { delivery: id.into(), attempt: 1 };
    for _ in 0..2 {
        system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job.to_bytes()).await;
    }
    receiver.wait_for(2, SOON).await;
    wait_idle(&system, &both).await;
    only_the_next_job_is_left(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_parked_by_one_dispatcher_and_fails_at_another_is_tried_again() {
    let options = Options { schedule: "300ms,600ms,900ms,1200ms,1500ms,1800ms", ..options() };
    let system = TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let first = First::attempting(&system).await;
    first.receiver.behave(always(200));
    // This one cannot open the secret and delays the job by a minute. Meanwhile the first one records its attempt.
    let second = system
        .start_with(
            Service::Dispatcher,
            system.settings_with(&[("SECRETS__KEYS", &format!("other:{}", hex::encode([9; 32])))]),
        )
        .await;
    first.proxy.set(Mode::Refuse);
    let sealed = r#"webhooks_jobs_skipped_total{reason="sealed"}"#;
    until_metric(second, sealed, 1.0, SOON).await;
    wait_idle(&system, &[second]).await;
    first.answered(&system, 0).await;
    system.stop(Service::Dispatcher).await;
    system.start(Service::Dispatcher).await;
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", 1, LONG * 2).await;
}
