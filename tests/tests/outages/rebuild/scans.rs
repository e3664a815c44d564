//! Old deliveries on both sides of the cursor of untried ones: those before it are in the index, a scan finds the others.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::{Service, System, TestSystem},
    wait::{SOON, eventually, until},
};
use uuid::Uuid;

use crate::rebuild::{
    Consumers, again, are_back, index::oldest, more_passes, options, overdue::without_dispatchers, passes, patient,
};

const FIVE_DAYS: time::Duration = time::Duration::days(5);

fn fired_before(tenant: Uuid, age: time::Duration) -> Event {
    let fired = time::OffsetDateTime::now_utc() - age;
    let timestamp = fired.format(&time::format_description::well_known::Rfc3339).unwrap();
    Event { timestamp, ..Event::now(EventType::QuoteClosed, tenant) }
}

/// Waits before the cursor: the index alone finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_an_old_event_and_of_its_resend_are_found_when_they_are_lost() {
    let system = TestSystem::prepared(options()).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    more_passes(ingest, "done", 10.0).await;
    let consumers = Consumers::start(&system).await;
    system.upstream.publish(&[fired_before(tenant, FIVE_DAYS)]).await;
    consumers.wait_for(1).await;
    assert_eq!(system.count("SELECT count(*) FROM unsuccessful_deliveries WHERE state = 'pending'").await, 1);
    consumers.wait_for(1).await;
    are_back(ingest, 1.0).await;

    system.sql("UPDATE deliveries SET state = 'dropped', attempts = 1, next_attempt_at = NULL").await;
    let ids = system.sql("SELECT webhook_id::text, id::text FROM deliveries").await;
    let (webhook, id) = (ids[0].get::<_, &str>(0), ids[0].get::<_, &str>(1));
    let path = format!("/api/v1/webhooks/{webhook}/deliveries/{id}/resend/");
    assert_eq!(system.admin(tenant).await.ask(&path).await.status, 202);
    // The resend's job, and its copy.
    consumers.wait_for(2).await;
    are_back(ingest, 2.0).await;
}

/// Adds untried deliveries to the tenant's webhook, whose events fired at `at`, in SQL and of the number `i` from 1 on.
async fn add_untried(system: &System, tenant: Uuid, count: usize, at: &str, created: &str) {
    system
        .sql(&format!(
            "WITH past AS MATERIALIZED ( \
                SELECT gen_random_uuid() AS event, date_trunc('milliseconds', {at}) AS at, {created} AS created FROM generate_series(1, {count}) AS i \
             ), event AS ( \
                INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                SELECT at, event, '{tenant}', 'quote.closed', '{{}}' FROM past \
             ) \
             INSERT INTO deliveries (id, webhook_id, event_id, event_type, created_at) \
             SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || \
                     '8' || substr(md5(event::text), 1, 3) || '8' || substr(md5(event::text), 4, 15))::uuid, \
                    (SELECT id FROM webhooks), event, 'quote.closed', created FROM past"
        ))
        .await;
}

/// The cursor of untried deliveries has reached ids of this many hours ago, and not yet those of an hour later.
async fn is_indexed(system: &System, hours: u32) -> Option<()> {
    let between =
        "moment_of(indexed_before) BETWEEN now() - interval '1 hour' * $ AND now() - interval '1 hour' * ($ - 1)";
    let seen = format!("SELECT count(*) FROM broker_generation WHERE {}", between.replace('$', &hours.to_string()));
    (system.count(&seen).await == 1).then_some(())
}

/// Nobody has led for three days, and jobs were lost meanwhile. A leader enqueues 1,000 of them again in a minute, and the
/// next leader the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_three_days_without_a_leader_the_lost_jobs_of_all_days_come_back_a_thousand_in_a_minute() {
    const JOBS: usize = 1_200;
    let system = TestSystem::prepared(options()).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    let four_days_ago = (time::OffsetDateTime::now_utc() - time::Duration::days(4)).date();
    let ledger = system.ledger_as("absent", 1);
    let Ok(mut leader) = ledger.candidate().await.unwrap().lead().await.unwrap() else { panic!("another leads") };
    leader.partitions_ensure(four_days_ago).await.unwrap();
    drop(leader);
    let fired = "now() - interval '3 days' + i * interval '3.6 minutes'";
    add_untried(&system, tenant, JOBS, fired, fired).await;
    let (consumers, began) = (Consumers::start(&system).await, Instant::now());
    let ingest = system.start(Service::Ingest).await;
    are_back(ingest, 1_000.0).await;
    more_passes(ingest, "done", 10.0).await;
    let first = again(ingest, "overdue").await;
    assert!(first == 1_000.0 || began.elapsed() >= Duration::from_secs(60), "{first} in the first minute");
    system.stop(Service::Ingest).await;
    let ingest = system.start(Service::Ingest).await;
    are_back(ingest, JOBS as f64 - first).await;
    let jobs: HashSet<_> = consumers.wait_for(JOBS).await.into_iter().map(|job| job.delivery).collect();
    assert_eq!(jobs.len(), JOBS, "each once");
    eventually("the cursor has come to 25 hours ago", SOON, || is_indexed(&system, 26)).await;
    let due = "SELECT count(*) FROM deliveries WHERE next_attempt_at = created_at \
                   AND id < (SELECT indexed_before FROM broker_generation)";
    let untried = "SELECT count(*) FROM deliveries WHERE next_attempt_at IS NULL \
                       AND id >= (SELECT indexed_before FROM broker_generation)";
    let (due, untried) = (system.count(due).await, system.count(untried).await);
    assert!(due + untried == JOBS as i64 && untried > 100, "{due} have a due time, {untried} do not");
    let three_days = 3.0 * 86_400.0 - 600.0;
    until("the oldest is shown", SOON, || async { oldest(ingest).await > three_days }).await;
    consumers.close().await;
}

/// The event was young enough to need no due time when its transaction began, half an hour ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_committed_half_an_hour_late_is_found_at_the_border_of_a_day() {
    let system = TestSystem::prepared(options()).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    eventually("the cursor has come to 25 hours ago", SOON, || is_indexed(&system, 26)).await;
    let began = "now() - interval '30 minutes'";
    add_untried(&system, tenant, 1, &format!("{began} - interval '1 day' + interval '1 minute'"), began).await;
    let consumers = Consumers::start(&system).await;
    are_back(ingest, 1.0).await;
    consumers.wait_for(1).await;
    // The leader looks again at the most overdue one that it knows, and at those that follow.
    system.sql("UPDATE deliveries SET state = 'succeeded'").await;
    until("it knows none", SOON, || async { oldest(ingest).await == 0.0 }).await;
    system.upstream.publish(&[fired_before(tenant, time::Duration::HOUR)]).await;
    consumers.wait_for(2).await;
    are_back(ingest, 2.0).await;
    consumers.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_broker_loses_its_disk_untried_deliveries_of_two_days_and_of_tomorrow_come_back() {
    let system = TestSystem::prepared(patient()).await;
    let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
    eventually("the cursor has come to 25 hours ago", SOON, || is_indexed(&system, 26)).await;
    // Of a day and a half ago to tomorrow: the first ones got their due times a moment ago.
    add_untried(&system, tenant, 1_000, "now() - interval '36 hours' + i * interval '3.5 minutes'", "now()").await;
    let indexed =
        "UPDATE deliveries SET next_attempt_at = created_at WHERE id < (SELECT indexed_before FROM broker_generation)";
    system.sql(indexed).await;
    let consumers = Consumers::start(&system).await;
    system.lose_generation().await;
    until("the rebuild is done", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    let jobs = consumers.wait_for(1_000).await;
    let distinct: HashSet<_> = jobs.iter().map(|job| job.delivery).collect();
    assert_eq!((jobs.len(), distinct.len()), (1_000, 1_000));
    assert_eq!(again(ingest, "broker_lost").await, 1_000.0);
    consumers.close().await;
}
