//! Which deliveries get their job again, and which have one elsewhere.

use std::collections::HashMap;

use broker::{Broker, BrokerConfig};
use domain::Job;
use end_to_end::{
    history::made,
    receiver::{Receiver, always},
    system::{Service, System, TestSystem},
    wait::{SOON, until},
};
use uuid::Uuid;

use crate::rebuild::{Cases, EACH, again, more_passes, passes, patient};

/// Empties the lanes. Returns how many jobs each webhook had.
async fn jobs(system: &System, cases: &Cases) -> HashMap<&'static str, usize> {
    let mut jobs: Vec<Job> = Vec::new();
    for queue in [system.names.main(), system.names.bulk()] {
        while let Some(message) = system.upstream.take(&queue).await {
            jobs.extend(Job::parse(&message.delivery.data).unwrap());
        }
    }
    let mut found = HashMap::new();
    for job in jobs {
        let find = format!("SELECT webhook_id::text FROM deliveries WHERE id = '{}'", job.delivery);
        let webhook: String = system.sql(&find).await[0].get(0);
        let (name, _) = cases.names.iter().find(|(_, created)| created.id == webhook).unwrap();
        *found.entry(*name).or_default() += 1;
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_time_what_the_broker_has_is_believed_then_a_rebuild_enqueues_what_waits_and_holds_what_is_paused() {
    let system = TestSystem::prepared(patient()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let cases = Cases::register(&system, &receiver).await;
    cases.fill(&system).await;
    let ingest = system.start(Service::Ingest).await;
    more_passes(ingest, "done", 3.0).await;
    assert_eq!((passes(ingest, "adopted").await, passes(ingest, "rebuilt").await), (1.0, 0.0));
    assert_eq!(jobs(&system, &cases).await, HashMap::new(), "no job is doubled");
    assert_eq!(system.generations().await.len(), 1);

    system.lose_generation().await;
    until("the rebuild is done", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    let expected = HashMap::from([("active", EACH), ("promised", EACH), ("parked", EACH)]);
    let lost = "the broker lost the dead jobs too, and what a relay may have published";
    assert_eq!(jobs(&system, &cases).await, expected, "{lost}");
    let held = format!("SELECT count(*) FROM held_jobs WHERE webhook_id = '{}'", cases.id("paused"));
    assert_eq!(system.count(&held).await, EACH as i64, "they come when the webhook is activated");
    assert_eq!(system.generations().await.len(), 1);
}

async fn interrupted(is_lost_again: bool) -> f64 {
    let system = TestSystem::prepared(patient()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let cases = Cases::register(&system, &receiver).await;
    made(&system, cases.tenant, cases.id("active"), 100, "'pending'").await;
    let half = "SELECT id FROM deliveries ORDER BY id LIMIT 50";
    system.sql(&format!("UPDATE deliveries SET next_attempt_at = created_at WHERE id IN ({half})")).await;
    let candidate = Uuid::new_v4();
    if !is_lost_again {
        let config = BrokerConfig {
            uri: system.amqp_url.clone(),
            password_file: None,
            tls: Default::default(),
            names: system.names.clone(),
            gaps: system.settings().retry.schedule.gaps(),
            confirm_timeout: SOON,
            process: "test",
        };
        let broker = Broker::new(&config).unwrap();
        broker.sentinel_declare(&system.names.generation(candidate)).await.unwrap();
    }
    system.lose_generation().await;
    system
        .sql(&format!(
            "UPDATE broker_generation SET rebuild_id = '{candidate}', rebuild_began_at = now(), \
                 (rebuild_due, rebuild_due_id) = ({due} OFFSET 19 LIMIT 1), \
                 rebuild_untried = ({untried} OFFSET 19 LIMIT 1)",
            untried = "SELECT id FROM deliveries WHERE next_attempt_at IS NULL ORDER BY id DESC",
            due = "SELECT next_attempt_at, id FROM deliveries WHERE next_attempt_at IS NOT NULL ORDER BY 1, 2"
        ))
        .await;
    let ingest = system.start(Service::Ingest).await;
    until("the rebuild is done", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    assert_eq!(system.generations().await, [candidate], "one queue for one loss, whoever ends the rebuild");
    again(ingest, "broker_lost").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_whose_leader_died_goes_on_where_it_was_and_begins_anew_if_the_broker_is_lost_again() {
    assert_eq!((interrupted(false).await, interrupted(true).await), (60.0, 100.0));
}

/// The second chunk of a rebuild waits for a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_notes_each_chunk_when_it_is_done() {
    const CHUNK: usize = 10_000;
    let system = TestSystem::prepared(patient()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let cases = Cases::register(&system, &receiver).await;
    let paused = cases.id("paused");
    let state = format!("CASE WHEN i > {CHUNK} THEN 'pending' ELSE 'succeeded' END");
    made(&system, cases.tenant, paused, CHUNK + EACH, &state).await;
    system.sql(&format!("UPDATE webhooks SET is_active = false WHERE id = '{paused}'")).await;
    system.lose_generation().await;
    // Nobody else can hold these jobs until this ends.
    let held = "INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE state = 'pending'";
    let lock = system.database_session(&format!("BEGIN; {held}")).await;
    let ingest = system.start(Service::Ingest).await;
    system.wait_for_locked_out(1).await;
    let before = "SELECT count(*) FROM deliveries WHERE id >= (SELECT rebuild_untried FROM broker_generation)";
    assert_eq!(system.count(before).await, CHUNK as i64, "the first chunk is noted, and the second is not");
    drop(lock);
    until("the rebuild is done", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, EACH as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_puts_back_is_due_when_that_is_done() {
    let system = TestSystem::prepared(patient()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let cases = Cases::register(&system, &receiver).await;
    let state = "(ARRAY['pending', 'retrying', 'retrying', 'succeeded'])[i]";
    made(&system, cases.tenant, cases.id("parked"), 4, state).await;
    let due = "UPDATE deliveries SET next_attempt_at = now() + interval '1 hour' WHERE id = \
                   (SELECT id FROM deliveries WHERE state = 'retrying' ORDER BY id LIMIT 1)";
    system.sql(due).await;
    system.sql("INSERT INTO suspect_jobs SELECT id, 3, now(), 'poison' FROM deliveries").await;
    let ids = system.sql("SELECT id::text FROM deliveries ORDER BY id").await;
    let ids: Vec<_> = ids.iter().map(|row| row.get::<_, &str>(0).parse::<Uuid>().unwrap().into()).collect();
    system.ledger_as("operator", 1).jobs_unpark(&ids).await.unwrap();
    assert_eq!(system.count("SELECT count(*) FROM suspect_jobs").await, 0);
    let count = async |which: &str| system.count(&format!("SELECT count(*) FROM deliveries WHERE {which}")).await;
    let now = "next_attempt_at BETWEEN now() - interval '1 minute' AND now()";
    assert_eq!(count(&format!("state IN ('pending', 'retrying') AND {now}")).await, 2);
    assert_eq!(count("next_attempt_at > now() + interval '50 minutes'").await, 1, "that was later");
    assert_eq!(count("state = 'succeeded' AND next_attempt_at IS NULL").await, 1, "it does not wait");
}
