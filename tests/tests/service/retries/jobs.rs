//! Jobs that are not to be done (crates/README.md, invariant 3).

use std::{net::SocketAddr, time::Duration};

use domain::{DeliveryId, Job};
use end_to_end::{
    outsider::text_header,
    receiver::{Behaviour, Receiver, Reply, always, behaviour, fails_then_succeeds},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::retries::{attempts, ended, no_message_is_left, publish};

struct Setting<'a> {
    system: &'a System,
    tenant: Uuid,
    receiver: Receiver,
    webhook: String,
    dispatcher: SocketAddr,
}

impl<'a> Setting<'a> {
    /// A tenant with a webhook, beside a running dispatcher.
    async fn of(system: &'a System, dispatcher: SocketAddr, behaviour: Behaviour) -> Self {
        let Subscriber { tenant, receiver, webhook, .. } = system.subscriber(behaviour).await;
        Self { system, tenant, receiver, webhook, dispatcher }
    }

    /// Publishes an event. Returns its delivery, whose first request has arrived.
    async fn delivery(&self) -> DeliveryId {
        publish(self.system, self.tenant).await;
        self.receiver.wait_for(1, SOON).await[0].header("x-service-webhook-id").unwrap().parse().unwrap()
    }

    /// Puts a message on the queue of due jobs.
    async fn hand_in(&self, message: &[u8]) {
        let System { upstream, names, .. } = self.system;
        upstream.publish_to(&names.exchange(), &names.main(), message).await;
    }

    /// Waits until exactly `jobs` jobs were skipped for a reason, those of earlier settings included.
    async fn skipped(&self, reason: &str, jobs: u32) {
        let name = format!("webhooks_jobs_skipped_total{{reason=\"{reason}\"}}");
        until(&format!("{jobs} jobs are {reason}"), SOON, || async {
            metric(self.dispatcher, &name).await >= f64::from(jobs)
        })
        .await;
        assert_eq!(metric(self.dispatcher, &name).await, f64::from(jobs));
    }

    /// Takes the jobs that were parked because the ledger does not know their deliveries.
    async fn unknown(&self) -> Vec<Job> {
        let System { upstream, names, .. } = self.system;
        upstream.wait_ready(&names.dead(), 1, SOON).await;
        let messages = upstream.take_all(&names.dead()).await;
        assert!(messages.iter().all(|message| text_header(message, "x-dead-reason") == "unknown_delivery"));
        messages.iter().flat_map(|message| Job::parse(&message.data).unwrap()).collect()
    }
}

/// Each step has a tenant of its own. What one leaves on a queue is seen at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_job_are_not_attempted_and_what_is_no_job_is_kept_with_the_reason() {
    let options = Options { timeout: "30s", ..Options::default() };
    let system = &*TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    a_copy_of_a_job_whose_attempt_was_made_is_stale(&Setting::of(system, dispatcher, always(200)).await).await;
    for (status, is_lost) in [(200, false), (500, true)] {
        let gate = CancellationToken::new();
        let answer = Reply::status(status).once(&gate);
        let setting = Setting::of(system, dispatcher, behaviour(move |_, _| answer.clone())).await;
        match is_lost {
            false => a_copy_of_a_job_that_is_under_way_is_not_attempted_beside_it(&setting, &gate).await,
            true => a_job_whose_delivery_is_lost_during_its_attempt_is_kept(&setting, &gate).await,
        }
    }
    let setting = Setting::of(system, dispatcher, always(200)).await;
    a_job_of_a_delivery_that_the_ledger_does_not_know_is_kept_unless_retention_took_it(&setting).await;
    garbage_is_kept_apart_with_the_reason(&setting).await;
    no_message_is_left(system).await;
    a_copy_that_comes_while_a_job_is_being_held_ends_with_it(system).await;
}

async fn a_copy_of_a_job_whose_attempt_was_made_is_stale(setting: &Setting<'_>) {
    let delivery = setting.delivery().await;
    ended(setting.system, &setting.webhook, "succeeded", 1).await;
    // One after the other: two copies at the same time would be duplicates.
    for (attempt, stale) in [(1, 1), (1, 2), (2, 3), (0, 4)] {
        setting.hand_in(&Job { delivery, attempt }.to_bytes()).await;
        setting.skipped("stale", stale).await;
    }
    assert_eq!(setting.receiver.received().len(), 1);
    assert_eq!(attempts(setting.system, &setting.webhook).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_two_attempts_only_the_next_one_is_not_stale_and_it_waits_for_its_time() {
    let options = Options { schedule: "5s,10s", ..Options::default() };
    let system = &*TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let setting = Setting::of(system, system.start(Service::Dispatcher).await, fails_then_succeeds(1)).await;
    let delivery = setting.delivery().await;
    ended(system, &setting.webhook, "retrying", 1).await;
    for attempt in [1, 3, 2] {
        setting.hand_in(&Job { delivery, attempt }.to_bytes()).await;
    }
    setting.skipped("stale", 2).await;
    setting.skipped("early", 1).await;
    ended(system, &setting.webhook, "succeeded", 2).await;
    let attempts = attempts(system, &setting.webhook).await;
    let apart = attempts[1].started_at - attempts[0].started_at;
    assert!(apart >= Duration::from_millis(4_700), "the retry came after {apart}");
    // Of the job and its copy, one was attempted. The other was its duplicate or came too late.
    until("the copy is skipped", SOON, || async {
        let skipped = metric(setting.dispatcher, "webhooks_jobs_skipped_total").await;
        skipped >= 4.0
    })
    .await;
    no_message_is_left(system).await;
    assert_eq!(setting.receiver.received().len(), 2);
}

async fn a_copy_of_a_job_that_is_under_way_is_not_attempted_beside_it(setting: &Setting<'_>, gate: &CancellationToken) {
    let delivery = setting.delivery().await;
    setting.hand_in(&Job { delivery, attempt: 1 }.to_bytes()).await;
    setting.skipped("duplicate", 1).await;
    gate.cancel();
    ended(setting.system, &setting.webhook, "succeeded", 1).await;
    assert_eq!(setting.receiver.received().len(), 1);
}

async fn a_copy_that_comes_while_a_job_is_being_held_ends_with_it(system: &System) {
    system.start(Service::Ingest).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    publish(system, tenant).await;
    system.upstream.wait_ready(&system.names.main(), 1, SOON).await;
    api.set_active(&webhook, false).await;

    let lock = system.database_session("BEGIN; LOCK TABLE held_jobs").await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let setting = Setting { system, tenant, receiver, webhook, dispatcher };
    system.wait_for_locked_out(1).await;
    let delivery = format!("SELECT id::text FROM deliveries WHERE webhook_id = '{}'", setting.webhook);
    let delivery: String = system.sql(&delivery).await[0].get(0);
    setting.hand_in(&Job { delivery: delivery.parse().unwrap(), attempt: 1 }.to_bytes()).await;
    setting.skipped("duplicate", 1).await;
    drop(lock);
    // The held job stands for its copy as well.
    let held = r#"webhooks_jobs_held_total{reason="paused"}"#;
    until_metric(dispatcher, held, 1.0, SOON).await;
    no_message_is_left(system).await;

    system.start(Service::Dispatcher).await;
    api.set_active(&setting.webhook, true).await;
    ended(system, &setting.webhook, "succeeded", 1).await;
    no_message_is_left(system).await;
    assert_eq!(setting.receiver.received().len(), 1);
}

async fn a_job_of_a_delivery_that_the_ledger_does_not_know_is_kept_unless_retention_took_it(setting: &Setting<'_>) {
    let stranger = Job { delivery: Uuid::now_v7().into(), attempt: 1 };
    let month = Duration::from_secs(31 * 24 * 60 * 60);
    let long_ago = u64::try_from((OffsetDateTime::now_utc() - month).unix_timestamp() * 1000).unwrap();
    let expired = Job { delivery: DeliveryId::from(DeliveryId::bound_at_millis(long_ago)), attempt: 1 };
    for job in [stranger, expired] {
        setting.hand_in(&job.to_bytes()).await;
    }
    // The first one is that whose delivery was lost.
    setting.skipped("unknown_delivery", 2).await;
    setting.skipped("expired", 1).await;
    assert_eq!(setting.unknown().await, [stranger]);
    assert_eq!(setting.receiver.received().len(), 0);
}

async fn a_job_whose_delivery_is_lost_during_its_attempt_is_kept(setting: &Setting<'_>, gate: &CancellationToken) {
    let delivery = setting.delivery().await;
    setting.system.sql(&format!("DELETE FROM deliveries WHERE webhook_id = '{}'", setting.webhook)).await;
    gate.cancel();
    setting.skipped("unknown_delivery", 1).await;
    assert_eq!(setting.unknown().await, [Job { delivery, attempt: 1 }]);
    let recorded = format!("SELECT count(*) FROM attempts WHERE delivery_id = '{delivery}'");
    assert_eq!(setting.system.count(&recorded).await, 0);
}

async fn garbage_is_kept_apart_with_the_reason(setting: &Setting<'_>) {
    let System { upstream, names, .. } = setting.system;
    let messages = [&b"\x00\xffgarbage"[..], b"", b"{\"v\":1,\"delivery_id\":\"x\",\"attempt\":1}"];
    for message in messages {
        setting.hand_in(message).await;
    }
    publish(setting.system, setting.tenant).await;
    ended(setting.system, &setting.webhook, "succeeded", 1).await;
    let dead = names.dead();
    upstream.wait_ready(&dead, 3, SOON).await;
    let mut kept = Vec::new();
    for message in upstream.take_all(&dead).await {
        assert!(!text_header(&message, "x-dead-detail").is_empty());
        assert_eq!(text_header(&message, "x-dead-reason"), "malformed_job");
        kept.push(message.delivery.data);
    }
    assert!(messages.iter().all(|one| kept.iter().any(|kept| kept == one)), "{kept:?}");
    assert_eq!(setting.receiver.received().len(), 1);
}
