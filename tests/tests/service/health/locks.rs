//! Outcomes that are recorded while a deletion or another dispatcher holds rows.

use std::cmp::Reverse;

use domain::{DeliveryId, EventId, EventType, OutcomeClass};
use end_to_end::system::{Service, TestSystem};
use uuid::Uuid;

use crate::health::{late::Records, once};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_are_recorded_while_their_webhook_is_deleted() {
    let system = TestSystem::serving(once(), [Service::Api]).await;
    let records = Records::of(&system).await;
    let delivery = |event: &EventId| DeliveryId::derive(records.webhook, *event, EventType::QuoteClosed, records.begin);
    let mut events: Vec<EventId> = (0..3).map(|_| Uuid::now_v7().into()).collect();
    // A statement that locks the deliveries in the table's order begins at the other end.
    events.sort_by_key(|event| Reverse(delivery(event)));
    let mut attempts = Vec::new();
    for event in &events {
        attempts.push(records.attempt_of(*event, OutcomeClass::Success, 1).await);
    }
    let middle = delivery(&events[1]);
    let hold =
        system.database_session(&format!("BEGIN; SELECT FROM deliveries WHERE id = '{middle}' FOR UPDATE")).await;
    let record = records.ledger.attempts_record(&attempts);
    let delete = async {
        system.wait_for_locked_out(1).await;
        let path = format!("/api/v1/webhooks/{}/", records.webhook);
        let release = async {
            system.wait_for_locked_out(2).await;
            drop(hold);
        };
        tokio::join!(records.api.delete(&path), release).0
    };
    let (recorded, deleted) = tokio::join!(record, delete);
    assert_eq!(recorded.unwrap().len(), attempts.len());
    assert_eq!(deleted.status, 204, "{}", deleted.text);
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_locked_in_the_order_of_their_ids_whatever_the_order_of_their_deliveries() {
    const WEBHOOKS: usize = 16;
    let system = TestSystem::serving(once(), [Service::Api]).await;
    let mut all = vec![Records::of(&system).await];
    while all.len() < WEBHOOKS {
        all.push(all[0].of_another_webhook().await);
    }
    all.sort_by_key(|records| records.webhook);
    let attempts = async || {
        let mut attempts = Vec::new();
        for records in &all {
            attempts.push(records.attempt(OutcomeClass::Success, 1).await);
        }
        attempts
    };
    let ledger = &all[0].ledger;
    ledger.attempts_record(&attempts().await).await.unwrap();

    let (waiting, others) = (attempts().await, attempts().await);
    let first = format!("SELECT FROM webhook_health WHERE webhook_id = '{}' FOR UPDATE", all[0].webhook);
    let hold = system.database_session(&format!("BEGIN; {first}")).await;
    let beside = async {
        system.wait_for_locked_out(1).await;
        ledger.attempts_record(&others[1..]).await.unwrap();
        drop(hold);
    };
    let (recorded, ()) = tokio::join!(ledger.attempts_record(&waiting), beside);
    assert_eq!(recorded.unwrap().len(), WEBHOOKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_whose_row_is_held_keeps_no_outcome_waiting() {
    let system = TestSystem::shared().await;
    let records = Records::of(&system).await;
    let attempts = [records.attempt_of(Uuid::now_v7().into(), OutcomeClass::Success, 1).await];
    let row = format!("SELECT FROM webhooks WHERE id = '{}' FOR NO KEY UPDATE", records.webhook);
    let hold = system.database_session(&format!("BEGIN; {row}")).await;
    assert_eq!(records.ledger.attempts_record(&attempts).await.unwrap().len(), 1);
    drop(hold);
}
