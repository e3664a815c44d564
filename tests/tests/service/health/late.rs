//! Outcomes that are recorded in another order than they happened. These tests call the ledger directly.

use std::time::Duration;

use domain::{
    Answer, DeliveryId, DeliveryState, EventId, EventType, OutcomeClass, Progress, TenantId, Timestamp, WebhookId,
};
use end_to_end::{
    api::Api,
    system::{Service, System, TestSystem},
};
use ledger::{Attempted, Ledger, NewEvent, Record};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::health::{Health, health, once};

pub(crate) const NOON: &str = "2026-03-01T12:00:00Z";

pub(crate) struct Records {
    pub(crate) api: Api,
    pub(crate) ledger: Ledger,
    tenant: TenantId,
    pub(crate) webhook: WebhookId,
}

impl Records {
    pub(crate) async fn of(system: &System) -> Self {
        system.start(Service::Api).await;
        let (tenant, api) = system.tenant().await;
        let webhook: Uuid = api.create("https://localhost/", &["quote.closed"]).await.id.parse().unwrap();
        Self { api, ledger: system.ledger_as("late", 2), tenant: tenant.into(), webhook: webhook.into() }
    }

    /// The same for another webhook of the tenant.
    pub(crate) async fn of_another_webhook(&self) -> Self {
        let webhook: Uuid = self.api.create("https://localhost/", &["quote.closed"]).await.id.parse().unwrap();
        Self { api: self.api.clone(), ledger: self.ledger.clone(), tenant: self.tenant, webhook: webhook.into() }
    }

    /// Stores a delivery. Returns its first attempt, which ended `second` seconds after noon and is not recorded yet.
    pub(crate) async fn attempt(&self, class: OutcomeClass, second: i64) -> Attempted {
        self.attempt_of(Uuid::now_v7().into(), class, second).await
    }

    pub(crate) async fn attempt_of(&self, id: EventId, class: OutcomeClass, second: i64) -> Attempted {
        let (timestamp, event_type): (Timestamp, _) = (NOON.parse().unwrap(), EventType::QuoteClosed);
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
            url: "https://localhost/".to_owned(),
            signed_at: OffsetDateTime::UNIX_EPOCH,
            answer: Answer {
                class,
                status: None,
                head: Vec::new(),
                error: None,
                started_at: at(second) - elapsed,
                elapsed,
            },
            traceparent: None,
        }
    }

    async fn record(&self, attempts: &[Attempted]) -> Health {
        let recorded = self.ledger.attempts_record(attempts).await.unwrap();
        let is_taken = |record: &Record| matches!(record, Record::Taken { .. });
        assert!(recorded.len() == attempts.len() && recorded.iter().all(is_taken), "each of them was expected");
        self.health().await
    }

    async fn health(&self) -> Health {
        health(&self.api, &self.webhook.to_string()).await
    }
}

fn at(second: i64) -> OffsetDateTime {
    NOON.parse::<Timestamp>().unwrap().as_datetime() + time::Duration::seconds(second)
}

fn is(failures: u64, second: i64) -> Health {
    Health { failures, succeeded_at: Some(at(second)) }
}

use OutcomeClass::{Status as Failure, Success};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_recorded_later_counts_as_later_and_the_last_success_is_the_latest() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    for (class, second, expected) in [
        (Success, 10, is(0, 10)),
        (Failure, 5, is(1, 10)),
        (Failure, 11, is(2, 10)),
        (Success, 3, is(0, 10)),
        (Failure, 14, is(1, 10)),
        (Success, 13, is(0, 13)),
        (Failure, 15, is(1, 13)),
        (Success, 16, is(0, 16)),
    ] {
        let attempt = records.attempt(class, second).await;
        assert_eq!(records.record(&[attempt]).await, expected, "{class} at {second}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_one_batch_the_failures_after_its_last_success_count() {
    let system = TestSystem::prepared(once()).await;
    let first = Records::of(&system).await;
    for (failures_before, batch, expected) in [
        (0, vec![(Failure, 5), (Success, 10), (Failure, 12), (Success, 7)], is(1, 10)),
        (2, vec![(Failure, 13), (Success, 8), (Failure, 5), (Success, 10), (Failure, 9), (Failure, 12)], is(2, 10)),
    ] {
        let records = first.of_another_webhook().await;
        for second in 1..=failures_before {
            records.record(&[records.attempt(Failure, second).await]).await;
        }
        let mut attempts = Vec::new();
        for (class, second) in batch {
            attempts.push(records.attempt(class, second).await);
        }
        assert_eq!(records.record(&attempts).await, expected, "after {failures_before} failures");
    }
}

const fn taken(state: DeliveryState) -> Record {
    Record::Taken { state, next_attempt_at: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_in_the_order_in_which_they_are_asked_for() {
    let system = TestSystem::prepared(once()).await;
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_recorded_again_counts_once_and_another_dispatchers_is_not_taken() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let first = records.attempt(Failure, 1).await;
    let mut of_another_dispatcher = first.clone();
    of_another_dispatcher.answer.started_at += Duration::from_micros(1);
    records.record(std::slice::from_ref(&first)).await;
    let again = Record::Taken { state: first.progress.state, next_attempt_at: first.progress.next_attempt_at };
    for (attempt, expected) in [(&first, again), (&of_another_dispatcher, Record::Superseded(first.progress))] {
        let recorded = records.ledger.attempts_record(std::slice::from_ref(attempt)).await.unwrap();
        assert_eq!(recorded, [expected]);
        assert_eq!(records.health().await, Health { failures: 1, succeeded_at: None });
        assert_eq!(system.count("SELECT count(*) FROM attempts").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_attempts_at_one_delivery_recorded_together_count_in_their_order() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let mut first = records.attempt(Failure, 1).await;
    first.progress.state = DeliveryState::Retrying;
    let progress = Progress { state: DeliveryState::Succeeded, attempts: 2, ..first.progress };
    let answer = Answer { class: Success, started_at: at(5), ..first.answer.clone() };
    let second = Attempted { progress, answer, ..first.clone() };
    let outcomes = records.ledger.attempts_record(&[second, first]).await.unwrap();
    assert_eq!(outcomes, [DeliveryState::Succeeded, DeliveryState::Retrying].map(taken), "as they were asked for");
    assert_eq!(records.health().await.failures, 0);
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_at_a_delivery_that_is_gone_leaves_no_trace_and_stops_no_other() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let batch = [records.attempt(Failure, 1).await, records.attempt(Success, 2).await];
    system.sql(&format!("DELETE FROM deliveries WHERE id = '{}'", batch[0].id)).await;
    let outcomes = records.ledger.attempts_record(&batch).await.unwrap();
    assert_eq!(outcomes, [Record::Unknown, taken(DeliveryState::Succeeded)]);
    assert_eq!(records.health().await, is(0, 2));
    assert_eq!(system.count("SELECT count(*) FROM deliveries").await, 1, "it did not come into being again");
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_ids_are_ids_like_others() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let batch = [records.attempt_of(Uuid::nil().into(), Success, 1).await, records.attempt(Success, 2).await];
    let ids = [batch[0].id, DeliveryId::from(Uuid::max()), batch[1].id, DeliveryId::from(Uuid::nil())];
    let loaded = records.ledger.deliveries_load(&ids).await.unwrap();
    let loaded: Vec<_> = loaded.iter().map(|one| one.as_ref().map(|delivery| delivery.id)).collect();
    assert_eq!(loaded, [Some(ids[0]), None, Some(ids[2]), None], "the others are unknown");
    assert_eq!(records.record(&batch).await, is(0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_a_day_that_was_dropped_meanwhile_are_told_to_be_of_unknown_deliveries() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let batch = [records.attempt(Failure, 1).await, records.attempt(Success, 2).await];
    system.database_session("DROP TABLE attempts_20260301, deliveries_20260301, events_20260301").await;
    let outcomes = records.ledger.attempts_record(&batch).await.unwrap();
    assert_eq!(outcomes, [Record::Unknown; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_of_a_day_that_was_made_in_part_are_recorded() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let batch = [records.attempt(Failure, 1).await, records.attempt(Success, 2).await];
    system.database_session("DROP TABLE attempts_20260301").await;
    records.record(&batch).await;
}
