//! Jobs that are not to be done (crates/README.md, invariant 3).

use std::{net::SocketAddr, time::Duration};

use domain::{DeliveryId, Job};
use end_to_end::{
    outsider::text_header,
    receiver::{Behaviour, Receiver, Reply, always, behaviour, fails_then_succeeds},
    system::{Options, Service, Subscriber, System, TestSystem, metric},
    wait::{SOON, until},
};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::retries::{attempts, ended, no_message_is_left, publish};

struct Setting {
    tenant: Uuid,
    receiver: Receiver,
    webhook: String,
    dispatcher: SocketAddr,
}

async fn set_up(system: &System, behaviour: Behaviour) -> Setting {
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(behaviour).await;
    Setting { tenant, receiver, webhook, dispatcher }
}

impl Setting {
    /// The delivery whose first request has arrived.
    async fn delivery(&self) -> DeliveryId {
        self.receiver.wait_for(1, SOON).await[0].header("x-service-webhook-id").unwrap().parse().unwrap()
    }

    /// Waits until exactly `jobs` jobs were skipped for a reason.
    async fn skipped(&self, reason: &str, jobs: u32) {
        let name = format!("webhooks_jobs_skipped_total{{reason=\"{reason}\"}}");
        until(&format!("{jobs} jobs are {reason}"), SOON, || async {
            metric(self.dispatcher, &name).await >= f64::from(jobs)
        })
        .await;
        assert_eq!(metric(self.dispatcher, &name).await, f64::from(jobs));
    }
}

/// Puts a message on the queue of due jobs.
async fn hand_in(system: &System, message: &[u8]) {
    system.upstream.publish_to(&system.names.exchange(), &system.names.main(), message).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_job_whose_attempt_was_made_is_stale() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = set_up(&system, always(200)).await;
    publish(&system, setting.tenant).await;
    let delivery = setting.delivery().await;
    ended(&system, &setting.webhook, "succeeded", 1).await;
    // One after the other: two copies at the same time would be duplicates.
    for (attempt, stale) in [(1, 1), (1, 2), (2, 3), (0, 4)] {
        hand_in(&system, &Job { delivery, attempt }.to_bytes()).await;
        setting.skipped("stale", stale).await;
    }
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 1);
    assert_eq!(attempts(&system, &setting.webhook).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_two_attempts_only_the_next_one_is_not_stale_and_it_waits_for_its_time() {
    let options = Options { schedule: "5s,10s", ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let setting = set_up(&system, fails_then_succeeds(1)).await;
    publish(&system, setting.tenant).await;
    let delivery = setting.delivery().await;
    ended(&system, &setting.webhook, "retrying", 1).await;
    for attempt in [1, 3, 2] {
        hand_in(&system, &Job { delivery, attempt }.to_bytes()).await;
    }
    setting.skipped("stale", 2).await;
    setting.skipped("early", 1).await;
    ended(&system, &setting.webhook, "succeeded", 2).await;
    let attempts = attempts(&system, &setting.webhook).await;
    let apart = attempts[1].started_at - attempts[0].started_at;
    assert!(apart >= Duration::from_millis(4_700), "the retry came after {apart}");
    // Of the job and its copy, one was attempted. The other was its duplicate or came too late.
    until("the copy is skipped", SOON, || async {
        let skipped = metric(setting.dispatcher, "webhooks_jobs_skipped_total").await;
        skipped >= 4.0
    })
    .await;
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_job_that_is_under_way_is_not_attempted_beside_it() {
    let system = TestSystem::prepared(Options::default()).await;
    let slow = Duration::from_secs(3);
    let setting = set_up(&system, behaviour(move |_, _| Reply::ok().after(slow))).await;
    publish(&system, setting.tenant).await;
    let delivery = setting.delivery().await;
    hand_in(&system, &Job { delivery, attempt: 1 }.to_bytes()).await;
    setting.skipped("duplicate", 1).await;
    ended(&system, &setting.webhook, "succeeded", 1).await;
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_comes_while_a_job_is_being_held_ends_with_it() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = set_up(&system, always(200)).await;
    system.stop(Service::Dispatcher).await;
    publish(&system, setting.tenant).await;
    let queue = system.names.main();
    until("the job waits", SOON, || async { system.upstream.ready(&queue).await == 1 }).await;
    let admin = system.admin(setting.tenant).await;
    let path = format!("/api/v1/webhooks/{}/", setting.webhook);
    assert_eq!(admin.patch(&path, &json!({"is_active": false})).await.status, 200);

    let lock = system.database_session("BEGIN; LOCK TABLE held_jobs").await;
    let setting = Setting { dispatcher: system.start(Service::Dispatcher).await, ..setting };
    system.wait_for_locked_out(1).await;
    let delivery: String = system.sql("SELECT id::text FROM deliveries").await[0].get(0);
    hand_in(&system, &Job { delivery: delivery.parse().unwrap(), attempt: 1 }.to_bytes()).await;
    setting.skipped("duplicate", 1).await;
    drop(lock);
    // The held job stands for its copy as well.
    let held = r#"webhooks_jobs_held_total{reason="paused"}"#;
    until("the job is held", SOON, || async { metric(setting.dispatcher, held).await == 1.0 }).await;
    no_message_is_left(&system).await;

    system.start(Service::Dispatcher).await;
    assert_eq!(admin.patch(&path, &json!({"is_active": true})).await.status, 200);
    ended(&system, &setting.webhook, "succeeded", 1).await;
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 1);
}

/// Takes the jobs that were parked because the ledger does not know their deliveries.
async fn unknown(system: &System) -> Vec<Job> {
    let messages = system.upstream.take_all(&system.names.dead()).await;
    assert!(messages.iter().all(|message| text_header(message, "x-dead-reason") == "unknown_delivery"));
    messages.iter().flat_map(|message| Job::parse(&message.data).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_delivery_that_the_ledger_does_not_know_is_kept_unless_retention_took_it() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = set_up(&system, always(200)).await;
    let stranger = Job { delivery: Uuid::now_v7().into(), attempt: 1 };
    let month = Duration::from_secs(31 * 24 * 60 * 60);
    let long_ago = u64::try_from((OffsetDateTime::now_utc() - month).unix_timestamp() * 1000).unwrap();
    let expired = Job { delivery: DeliveryId::from(DeliveryId::bound_at_millis(long_ago)), attempt: 1 };
    for job in [stranger, expired] {
        hand_in(&system, &job.to_bytes()).await;
    }
    setting.skipped("unknown_delivery", 1).await;
    setting.skipped("expired", 1).await;
    let dead = system.names.dead();
    until("it is kept", SOON, || async { system.upstream.ready(&dead).await == 1 }).await;
    assert_eq!(unknown(&system).await, [stranger]);
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_delivery_is_lost_during_its_attempt_is_kept() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = set_up(&system, behaviour(|_, _| Reply::status(500).after(Duration::from_secs(2)))).await;
    publish(&system, setting.tenant).await;
    let delivery = setting.delivery().await;
    system.sql("DELETE FROM deliveries").await;
    setting.skipped("unknown_delivery", 1).await;
    let dead = system.names.dead();
    until("it is kept", SOON, || async { system.upstream.ready(&dead).await == 1 }).await;
    assert_eq!(unknown(&system).await, [Job { delivery, attempt: 1 }]);
    no_message_is_left(&system).await;
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_jobs_of_an_unknown_version_are_kept_apart_with_the_reason() {
    let system = TestSystem::prepared(Options::default()).await;
    let setting = set_up(&system, always(200)).await;
    let id = Uuid::now_v7();
    let later = format!("{{\"v\":3,\"delivery_id\":\"{id}\",\"attempt\":1,\"more\":true}}").into_bytes();
    let messages = [
        (later, "unknown_version"),
        (b"\x00\xffgarbage".to_vec(), "malformed_job"),
        (Vec::new(), "malformed_job"),
        (b"{\"v\":1,\"delivery_id\":\"x\",\"attempt\":1}".to_vec(), "malformed_job"),
    ];
    for (message, _) in &messages {
        hand_in(&system, message).await;
    }
    publish(&system, setting.tenant).await;
    ended(&system, &setting.webhook, "succeeded", 1).await;
    let (dead, upstream) = (system.names.dead(), &system.upstream);
    until("they are moved", SOON, || async { upstream.ready(&dead).await == 4 }).await;
    let mut kept = Vec::new();
    for message in upstream.take_all(&dead).await {
        assert!(!text_header(&message, "x-dead-detail").is_empty());
        kept.push((message.data.clone(), text_header(&message, "x-dead-reason")));
    }
    let expected = messages.map(|(message, reason)| (message, reason.to_owned()));
    assert!(expected.iter().all(|one| kept.contains(one)), "{kept:?}");
    no_message_is_left(&system).await;
    assert_eq!(setting.receiver.received().len(), 1);
}
