//! Which deliveries get their job again, and which have one elsewhere.

use std::collections::HashMap;

use broker::{Broker, BrokerConfig};
use end_to_end::{
    history::made,
    receiver::{Receiver, always},
    system::{Service, System},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::rebuild::{Cases, EACH, again, more_passes, options, passes, patient};

/// Takes all jobs from the queue. Returns how many each webhook had.
async fn jobs(system: &System, cases: &Cases) -> HashMap<&'static str, usize> {
    let mut found = HashMap::new();
    while let Some(message) = system.upstream.take(&system.names.main()).await {
        let [job] = domain::Job::parse(&message.delivery.data).unwrap()[..] else { panic!("a message for each job") };
        let find = format!("SELECT webhook_id::text FROM deliveries WHERE id = '{}'", job.delivery);
        let webhook: String = system.sql(&find).await[0].get(0);
        let (name, _) = cases.names.iter().find(|(_, created)| created.id == webhook).unwrap();
        *found.entry(*name).or_default() += 1;
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_enqueues_what_waits_and_holds_what_is_paused() {
    System::prepared(patient(), async |system| {
        let receiver = Receiver::start(&system.ca, always(200));
        let cases = Cases::register(&system, &receiver).await;
        cases.fill(&system).await;
        system.lose_generation().await;
        let ingest = system.start(Service::Ingest).await;
        eventually("the rebuild is done", SOON, || async { (passes(ingest, "rebuilt").await > 0.0).then_some(()) })
            .await;
        let expected = HashMap::from([("active", EACH), ("parked", EACH)]);
        assert_eq!(jobs(&system, &cases).await, expected, "the broker lost the dead jobs too");
        let held = format!("SELECT count(*) FROM held_jobs WHERE webhook_id = '{}'", cases.id("paused"));
        assert_eq!(system.count(&held).await, EACH as i64, "they come when the webhook is activated");
        assert_eq!(system.generations().await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_time_ever_what_the_broker_has_is_believed() {
    System::prepared(patient(), async |system| {
        let receiver = Receiver::start(&system.ca, always(200));
        let cases = Cases::register(&system, &receiver).await;
        cases.fill(&system).await;
        let ingest = system.start(Service::Ingest).await;
        more_passes(ingest, "done", 3.0).await;
        assert_eq!((passes(ingest, "adopted").await, passes(ingest, "rebuilt").await), (1.0, 0.0));
        assert_eq!(jobs(&system, &cases).await, HashMap::new(), "no job is doubled");
        assert_eq!(system.generations().await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overdue_delivery_that_has_a_job_somewhere_else_gets_no_other() {
    System::prepared(options(), async |system| {
        let receiver = Receiver::start(&system.ca, always(200));
        let cases = Cases::register(&system, &receiver).await;
        let ingest = system.start(Service::Ingest).await;
        eventually("the broker is known", SOON, || async { (passes(ingest, "done").await > 0.0).then_some(()) }).await;
        cases.fill(&system).await;
        eventually("jobs are back", SOON, || async { (again(ingest, "overdue").await > 0.0).then_some(()) }).await;
        assert_eq!(jobs(&system, &cases).await, HashMap::from([("active", EACH)]));
        more_passes(ingest, "done", 30.0).await;
        assert_eq!(jobs(&system, &cases).await, HashMap::new(), "the same attempt again only after an hour");
        system.sql("UPDATE requeued_jobs SET requeued_at = requeued_at - interval '61 minutes'").await;
        eventually("an hour later", SOON, || async { (again(ingest, "overdue").await > EACH as f64).then_some(()) })
            .await;
        assert_eq!(jobs(&system, &cases).await, HashMap::from([("active", EACH)]));
        system.sql("UPDATE requeued_jobs SET requeued_at = requeued_at - interval '61 minutes'").await;
        more_passes(ingest, "done", 30.0).await;
        assert_eq!(jobs(&system, &cases).await, HashMap::new(), "then after two");
    })
    .await;
}

async fn interrupted(is_lost_again: bool) -> f64 {
    let mut enqueued = 0.0;
    System::prepared(patient(), async |system| {
        let receiver = Receiver::start(&system.ca, always(200));
        let cases = Cases::register(&system, &receiver).await;
        made(&system, cases.tenant, cases.id("active"), 100, "'pending'").await;
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
                "UPDATE broker_generation SET rebuilding = '{candidate}', rebuild_began_at = now(), \
                 rebuild_reached = (SELECT id FROM deliveries ORDER BY id OFFSET 39 LIMIT 1)"
            ))
            .await;
        let ingest = system.start(Service::Ingest).await;
        eventually("the rebuild is done", SOON, || async { (passes(ingest, "rebuilt").await > 0.0).then_some(()) })
            .await;
        assert_eq!(system.generations().await, [candidate], "one queue for one loss, whoever ends the rebuild");
        enqueued = again(ingest, "broker_lost").await;
    })
    .await;
    enqueued
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_whose_leader_died_goes_on_where_it_was() {
    assert_eq!(interrupted(false).await, 60.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_during_which_the_broker_is_lost_again_begins_anew() {
    assert_eq!(interrupted(true).await, 100.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_puts_back_is_due_when_that_is_done() {
    System::prepared(patient(), async |system| {
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
    })
    .await;
}
