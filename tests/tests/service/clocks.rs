//! The database's clock and the dispatchers' differ. Due times, leases and the log go by the database's.

use std::{net::SocketAddr, time::Duration};

use end_to_end::{
    api::Api,
    clock,
    events::Event,
    history,
    receiver::{Receiver, always, fails_then_succeeds, verify},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use time::OffsetDateTime;
use uuid::Uuid;

/// The steps of these tests' schedule, in seconds.
const STEPS: [u32; 3] = [1, 2, 4];
/// The lateness of an attempt on a busy machine: less than the clocks differ.
const LATE: Duration = Duration::from_secs(15);
const EARLY: Duration = Duration::from_millis(300);
const TWO_MINUTES: i64 = 120;
const TEN_MINUTES: i64 = 600;

fn options() -> Options {
    Options { schedule: "1s,2s,4s", ..Options::default() }
}

/// The retry is due when the brake has long been on.
fn patient() -> Options {
    Options { schedule: "8s,20s", ..Options::default() }
}

/// Starts the services with a database whose clock is ahead by these seconds. Returns the dispatcher's address.
async fn start(system: &System, ahead: i64) -> SocketAddr {
    clock::make_settable(system).await;
    clock::set_ahead(system, ahead).await;
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    system.start(Service::Dispatcher).await
}

async fn publish(system: &System, tenant: Uuid) {
    system.upstream.publish(&Event::closed(tenant, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_delivered_on_time_while_the_database_is_two_minutes_ahead() {
    delivers_on_time(TestSystem::prepared(options()).await, TWO_MINUTES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_delivered_on_time_while_the_database_is_two_minutes_behind() {
    delivers_on_time(TestSystem::prepared(options()).await, -TWO_MINUTES).await;
}

async fn delivers_on_time(system: TestSystem, ahead: i64) {
    start(&system, ahead).await;
    system.start(Service::Dispatcher).await;
    let (tenant, admin) = system.tenant().await;
    let (good, bad) = (Receiver::start(&system.ca, always(200)), Receiver::start(&system.ca, always(500)));
    let delivered = admin.create(&good.url("/"), &["quote.closed"]).await;
    let dropped = admin.create(&bad.url("/"), &["quote.closed"]).await;
    publish(&system, tenant).await;
    verify(&good.wait_for(1, SOON).await[0], &delivered.secret).unwrap();
    let received = bad.wait_for(4, SOON * 2).await;
    let failed_at = received[0].at;
    for (one, step) in received[1..].iter().zip(STEPS) {
        let after = one.at - failed_at;
        let step = Duration::from_secs(step.into());
        assert!(after > step - EARLY && after < step + LATE, "the retry of {step:?} came after {after}");
    }
    for one in &received {
        verify(one, &dropped.secret).unwrap();
    }
    let delivery = admin.newest_in(&dropped.id, "dropped").await;
    // `t` is the dispatcher's, and the receiver's. Everything else is the database's.
    let differences = system.sql("SELECT extract(epoch FROM started_at - signed_at)::float8 FROM attempts").await;
    assert_eq!(differences.len(), 5);
    for row in differences {
        let seconds = row.get::<_, f64>(0) - ahead as f64;
        assert!(seconds.abs() < LATE.as_secs_f64(), "the log is {seconds} s off the database's clock");
    }
    assert_eq!(admin.resend(&dropped.id, &delivery).await.status, 202);
    let resent_at = OffsetDateTime::now_utc();
    let after = bad.wait_for(5, SOON).await[4].at - resent_at;
    assert!(after < LATE, "the resend came after {after}");
    woken_on_time(&system, &admin, tenant).await;
}

/// A job that is held for a paused webhook is due when its webhook is activated.
async fn woken_on_time(system: &System, admin: &Api, tenant: Uuid) {
    let receiver = Receiver::start(&system.ca, fails_then_succeeds(1));
    let webhook = admin.create(&receiver.url("/"), &["quote.closed"]).await;
    publish(system, tenant).await;
    receiver.wait_for(1, SOON).await;
    admin.set_active(&webhook.id, false).await;
    let held = format!("SELECT count(*) FROM held_jobs WHERE webhook_id = '{}'", webhook.id);
    system.until_count(&held, 1, SOON).await;
    admin.set_active(&webhook.id, true).await;
    let activated_at = OffsetDateTime::now_utc();
    let after = receiver.wait_for(2, SOON).await[1].at - activated_at;
    assert!(after < LATE, "the held job came after {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_the_outbox_ends_by_the_databases_clock() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await.id;
    system.stop(Service::Api).await;
    history::made(&system, tenant, &webhook, 2, "'pending'").await;
    clock::make_settable(&system).await;
    for ahead in [-TWO_MINUTES, TWO_MINUTES] {
        clock::set_ahead(&system, ahead).await;
        system.sql("DELETE FROM promised_jobs").await;
        // One has ended, and one lasts for another half minute.
        let leases = format!(
            "INSERT INTO promised_jobs SELECT id, pg_catalog.now() + interval '1 second' * ({ahead} + \
                CASE WHEN id = (SELECT min(id::text)::uuid FROM deliveries) THEN -1 ELSE 30 END) FROM deliveries"
        );
        system.sql(&leases).await;
        let relay = system.ledger_as("relay", 1);
        let leased = relay.outbox_lease(10).await.unwrap();
        assert_eq!(leased.jobs().len(), 1, "{ahead} s ahead");
        assert!(relay.outbox_lease(10).await.unwrap().is_empty(), "{ahead} s ahead: it was leased twice");
        lease_lasts(&system, ahead).await;
        relay.outbox_delete(&leased).await.unwrap();
        assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 1);

        // A step leases its own jobs.
        for table in ["promised_jobs", "held_jobs", "held_webhooks"] {
            system.sql(&format!("DELETE FROM {table}")).await;
        }
        history::held(&system, &webhook).await;
        system.sql("UPDATE held_webhooks SET release_at = '-infinity'").await;
        assert!(relay.jobs_release(10).await.unwrap().is_some(), "{ahead} s ahead");
        lease_lasts(&system, ahead).await;
    }
}

async fn lease_lasts(system: &System, ahead: i64) {
    let lasts =
        format!("SELECT extract(epoch FROM max(leased_until) - pg_catalog.now())::bigint - {ahead} FROM promised_jobs");
    let lasts = system.count(&lasts).await;
    assert!((15..=31).contains(&lasts), "{lasts} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_is_made_while_the_database_is_ten_minutes_ahead() {
    waits_for_agreeing_clocks(TestSystem::prepared(options()).await, TEN_MINUTES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_is_made_while_the_database_is_ten_minutes_behind() {
    waits_for_agreeing_clocks(TestSystem::prepared(options()).await, -TEN_MINUTES).await;
}

async fn waits_for_agreeing_clocks(system: TestSystem, ahead: i64) {
    let dispatcher = start(&system, ahead).await;
    let Subscriber { tenant, api: admin, receiver, webhook, secret } = system.subscriber(always(200)).await;
    no_job_is_taken(&system, dispatcher).await;
    publish(&system, tenant).await;
    // Ingest, which started with this clock, leaves it there.
    system.upstream.wait_ready(&system.names.events(), 1, SOON).await;
    no_job_is_taken(&system, dispatcher).await;
    assert_eq!(system.upstream.ready(&system.names.events()).await, 1);
    let before = OffsetDateTime::now_utc();
    clock::set_ahead(&system, 0).await;
    let received = receiver.wait_for(1, SOON).await;
    assert!(received[0].at >= before, "a POST was made {} before the clocks agreed", before - received[0].at);
    verify(&received[0], &secret).unwrap();
    assert_eq!(admin.newest_in(&webhook, "succeeded").await["attempts"], 1);
    assert_eq!(receiver.received().len(), 1);
}

/// Events are judged by the database's clock: by these, a current one is too old, or of the future.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn current_events_wait_while_the_databases_clock_is_days_off() {
    const DAY: i64 = 86_400;
    let system = TestSystem::prepared(Options::default()).await;
    start(&system, 0).await;
    let ingest = system.start(Service::Ingest).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    for (before, ahead) in [40 * DAY, -2 * DAY].into_iter().enumerate() {
        clock::set_ahead(&system, ahead).await;
        let events = system.names.events();
        until("no ingest accepts events", SOON, || async {
            let is_held = metric(ingest, "webhooks_ingest_held").await == 1.0;
            is_held && system.upstream.consumers(&events).await == 0
        })
        .await;
        publish(&system, tenant).await;
        system.upstream.wait_ready(&events, 1, SOON).await;
        clock::set_ahead(&system, 0).await;
        receiver.wait_for(before + 1, SOON).await;
        until_metric(ingest, "webhooks_ingest_held", 0.0, SOON).await;
    }
    assert_eq!(system.upstream.ready(&system.names.rejected()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_is_made_after_a_standby_is_promoted_whose_clock_is_ten_minutes_ahead() {
    waits_after_a_promotion(TestSystem::prepared(patient()).await, TEN_MINUTES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attempt_is_made_after_a_standby_is_promoted_whose_clock_is_ten_minutes_behind() {
    waits_after_a_promotion(TestSystem::prepared(patient()).await, -TEN_MINUTES).await;
}

/// A delivery's retry waits when the clock changes.
async fn waits_after_a_promotion(system: TestSystem, ahead: i64) {
    let dispatcher = start(&system, 0).await;
    let Subscriber { tenant, api: admin, receiver, webhook, secret } = system.subscriber(fails_then_succeeds(1)).await;
    publish(&system, tenant).await;
    receiver.wait_for(1, SOON).await;
    admin.newest_in(&webhook, "retrying").await;
    clock::set_ahead(&system, ahead).await;
    no_job_is_taken(&system, dispatcher).await;
    let made = receiver.received().len();
    assert_eq!(made, 1, "the retry was due later");
    system.upstream.wait_ready(&system.names.main(), 1, SOON).await;
    assert_eq!(admin.newest_in(&webhook, "retrying").await["attempts"], 1);
    let before = OffsetDateTime::now_utc();
    clock::set_ahead(&system, 0).await;
    let received = receiver.wait_for(2, SOON).await;
    assert!(received[1].at >= before, "a POST was made {} before the clocks agreed", before - received[1].at);
    verify(&received[1], &secret).unwrap();
    assert_eq!(admin.newest_in(&webhook, "succeeded").await["attempts"], 2);
    assert_eq!(receiver.received().len(), 2);
}

/// Waits until the dispatcher knows that the clocks differ, and does not consume the main lane.
async fn no_job_is_taken(system: &System, dispatcher: SocketAddr) {
    let main = system.names.main();
    until("the brake is on", SOON, || async {
        let offset = metric(dispatcher, "webhooks_database_clock_offset_seconds").await;
        offset.abs() > 500.0 && system.upstream.consumers(&main).await == 0
    })
    .await;
}
