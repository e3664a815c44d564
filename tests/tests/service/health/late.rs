//! Outcomes that are recorded in another order than they happened. These tests call the ledger directly.

use std::time::Duration;

use domain::{
    DeliveryId, DeliveryState, EventId, EventType, OutcomeClass, PostResult, Progress, TenantId, Timestamp, WebhookId,
};
use end_to_end::{
    api::Api,
    system::{Service, System, TestSystem},
};
use ledger::{Attempted, Ledger, NewEvent, Record};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::health::{Health, health, once};

pub(crate) struct Records {
    pub(crate) api: Api,
    pub(crate) ledger: Ledger,
    tenant: TenantId,
    pub(crate) webhook: WebhookId,
    /// The time of all events.
    pub(crate) begin: Timestamp,
}

impl Records {
    /// Of a new tenant's webhook. The API runs.
    pub(crate) async fn of(system: &System) -> Self {
        // No hour ends during the test's attempts.
        let begin = OffsetDateTime::now_utc() - time::Duration::HOUR;
        let begin = begin.replace_minute(10).unwrap().replace_nanosecond(0).unwrap();
        let (tenant, api) = system.tenant().await;
        let (tenant, ledger) = (tenant.into(), system.ledger_as("late", 2));
        Self { api, ledger, tenant, webhook: Uuid::nil().into(), begin: begin.try_into().unwrap() }
            .of_another_webhook()
            .await
    }

    /// The same for another webhook of the tenant.
    pub(crate) async fn of_another_webhook(&self) -> Self {
        let webhook: Uuid = self.api.create("https://localhost/", &["quote.closed"]).await.id.parse().unwrap();
        Self { api: self.api.clone(), ledger: self.ledger.clone(), webhook: webhook.into(), ..*self }
    }

    /// Stores a delivery. Returns its first attempt, which ended `second` seconds after the event and is not recorded yet.
    pub(crate) async fn attempt(&self, class: OutcomeClass, second: i64) -> Attempted {
        self.attempt_of(Uuid::now_v7().into(), class, second).await
    }

    /// Like [`Records::attempt`], for several of them.
    pub(crate) async fn attempts(&self, all: &[(OutcomeClass, i64)]) -> Vec<Attempted> {
        let mut attempts = Vec::new();
        for (class, second) in all {
            attempts.push(self.attempt(*class, *second).await);
        }
        attempts
    }

    pub(crate) async fn attempt_of(&self, id: EventId, class: OutcomeClass, second: i64) -> Attempted {
        let (timestamp, event_type) = (self.begin, EventType::QuoteClosed);
        let event =
            NewEvent { id, timestamp, tenant: self.tenant, event_type, body: b"{}"[..].into(), traceparent: None };
        let delivery = DeliveryId::derive(self.webhook, id, event_type, timestamp);
        assert!(self.ledger.events_store(&[event]).await.unwrap().deliveries.contains(&(0, delivery)));
        let elapsed = Duration::from_millis(250);
        let state = if class.is_success() { DeliveryState::Succeeded } else { DeliveryState::Dropped };
        Attempted {
            id: delivery,
            webhook: self.webhook,
            progress: Progress { state, attempts: 1, ..Progress::NEW },
            url: format!("https://localhost/{}", self.webhook),
            signed_at: OffsetDateTime::UNIX_EPOCH,
            answer: PostResult {
                class,
                status: None,
                head: Vec::new(),
                error: None,
                started_at: self.at(second) - elapsed,
                elapsed,
            },
            traceparent: None,
        }
    }

    /// Records attempts, each of which the ledger expects.
    pub(crate) async fn record(&self, attempts: &[Attempted]) -> Health {
        let recorded = self.ledger.attempts_record(attempts).await.unwrap();
        let is_taken = |record: &Record| matches!(record, Record::Taken { .. });
        assert!(recorded.len() == attempts.len() && recorded.iter().all(is_taken), "each of them was expected");
        self.health().await
    }

    pub(crate) async fn health(&self) -> Health {
        health(&self.api, &self.webhook.to_string()).await
    }

    /// The number of attempts in the webhook's log.
    pub(crate) async fn logged(&self, system: &System) -> i64 {
        system.count(&format!("SELECT count(*) FROM attempts WHERE url = 'https://localhost/{}'", self.webhook)).await
    }

    fn at(&self, second: i64) -> OffsetDateTime {
        self.begin.as_datetime() + time::Duration::seconds(second)
    }

    fn is(&self, failures: u64, second: i64) -> Health {
        Health { failures, succeeded_at: Some(self.at(second)) }
    }
}

use OutcomeClass::{Status as Failure, Success};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_later_counts_as_later_and_the_last_success_is_the_latest() {
    let system = TestSystem::shared().await;
    let first = Records::of(&system).await;
    // Each batch with the number of failures and the last success after it.
    let one_by_one: &[(&[_], _, _)] = &[
        (&[(Success, 10)], 0, Some(10)),
        (&[(Failure, 5)], 1, Some(10)),
        (&[(Failure, 11)], 2, Some(10)),
        (&[(Success, 3)], 0, Some(10)),
        (&[(Failure, 14)], 1, Some(10)),
        (&[(Success, 13)], 0, Some(13)),
        (&[(Failure, 15)], 1, Some(13)),
        (&[(Success, 16)], 0, Some(16)),
        (&[(Success, 17)], 0, Some(17)),
    ];
    let together: &[(&[_], _, _)] = &[(&[(Failure, 5), (Success, 10), (Failure, 12), (Success, 7)], 1, Some(10))];
    let after_failures: &[(&[_], _, _)] = &[
        (&[(Failure, 1)], 1, None),
        (&[(Failure, 2)], 2, None),
        (&[(Failure, 13), (Success, 8), (Failure, 5), (Success, 10), (Failure, 9), (Failure, 12)], 2, Some(10)),
    ];
    for batches in [one_by_one, together, after_failures] {
        let records = first.of_another_webhook().await;
        for (batch, failures, success) in batches {
            let expected = Health { failures: *failures, succeeded_at: success.map(|second| records.at(second)) };
            let attempts = records.attempts(batch).await;
            assert_eq!(records.record(&attempts).await, expected, "{batch:?}");
        }
    }
}

const fn taken(state: DeliveryState) -> Record {
    Record::Taken { state, next_attempt_at: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_in_the_order_in_which_they_are_asked_for() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let mut batch = Vec::new();
    for second in 0..12 {
        batch.push(records.attempt(if second % 2 == 0 { Success } else { Failure }, second).await);
    }
    // The ledger records in the order of ids.
    batch.sort_unstable_by_key(|attempted| std::cmp::Reverse(attempted.id));
    let mut expected: Vec<_> = batch.iter().map(|attempted| taken(attempted.progress.state)).collect();
    let (gone, again, others) = (2, 5, 9);
    system.sql(&format!("DELETE FROM deliveries WHERE id = '{}'", batch[gone].id)).await;
    expected[gone] = Record::Unknown;
    records.record(&batch[again..=again]).await;
    let mut of_another_dispatcher = batch[others].clone();
    of_another_dispatcher.answer.started_at += Duration::from_micros(1);
    records.record(&[of_another_dispatcher]).await;
    expected[others] = Record::Superseded(batch[others].progress);
    assert_eq!(records.ledger.attempts_record(&batch).await.unwrap(), expected);
    assert_eq!(records.logged(&system).await, 11, "each once, and none of a delivery that is gone");
    let gone = format!("SELECT count(*) FROM deliveries WHERE id = '{}'", batch[gone].id);
    assert_eq!(system.count(&gone).await, 0, "it did not come into being again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_recorded_again_counts_once_and_another_dispatchers_is_not_taken() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let first = records.attempt(Failure, 1).await;
    let mut of_another_dispatcher = first.clone();
    of_another_dispatcher.answer.started_at += Duration::from_micros(1);
    records.record(std::slice::from_ref(&first)).await;
    for (attempt, expected) in
        [(&first, taken(first.progress.state)), (&of_another_dispatcher, Record::Superseded(first.progress))]
    {
        let recorded = records.ledger.attempts_record(std::slice::from_ref(attempt)).await.unwrap();
        assert_eq!(recorded, [expected]);
        assert_eq!(records.health().await, Health { failures: 1, succeeded_at: None });
        assert_eq!(records.logged(&system).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_attempts_at_one_delivery_recorded_together_count_in_their_order() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let mut first = records.attempt(Failure, 1).await;
    first.progress.state = DeliveryState::Retrying;
    let progress = Progress { state: DeliveryState::Succeeded, attempts: 2, ..first.progress };
    let answer = PostResult { class: Success, started_at: records.at(5), ..first.answer.clone() };
    let second = Attempted { progress, answer, ..first.clone() };
    let outcomes = records.ledger.attempts_record(&[second, first]).await.unwrap();
    assert_eq!(outcomes, [DeliveryState::Succeeded, DeliveryState::Retrying].map(taken), "as they were asked for");
    assert_eq!(records.health().await.failures, 0);
    assert_eq!(records.logged(&system).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_ids_are_ids_like_others() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let batch = [records.attempt_of(Uuid::nil().into(), Success, 1).await, records.attempt(Success, 2).await];
    let ids = [batch[0].id, DeliveryId::from(Uuid::max()), batch[1].id, DeliveryId::from(Uuid::nil())];
    let loaded = records.ledger.deliveries_load(&ids).await.unwrap();
    let loaded: Vec<_> = loaded.iter().map(|one| one.as_ref().map(|delivery| delivery.id)).collect();
    assert_eq!(loaded, [Some(ids[0]), None, Some(ids[2]), None], "the others are unknown");
    assert_eq!(records.record(&batch).await, records.is(0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_a_day_that_was_made_in_part_are_recorded_and_those_of_a_dropped_day_are_of_unknown_deliveries() {
    let system = TestSystem::serving(once(), [Service::Api]).await;
    let records = Records::of(&system).await;
    let day = records.begin.to_string().replace('-', "")[..8].to_owned();
    let batch = [records.attempt(Failure, 1).await, records.attempt(Success, 2).await];
    system.sql(&format!("DROP TABLE attempts_{day}")).await;
    assert_eq!(records.record(&batch).await, records.is(0, 2));
    system.sql(&format!("DROP TABLE attempts_{day}, deliveries_{day}, events_{day}")).await;
    assert_eq!(records.ledger.attempts_record(&batch).await.unwrap(), [Record::Unknown; 2]);
}
