//! Retention of whole days.

use std::time::Instant;

use domain::{EventId, EventType, TenantId};
use end_to_end::{
    clock,
    system::{Options, Service, System, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use ledger::{DayPart, Leader, LedgerError, NewEvent, Removal};
use uuid::Uuid;

use crate::retention::{
    DAY, KEEP, Outcome, Subscribed, drop_day, index, leader, ledger, options, partitions, remove, rows, today,
};

/// Noon of a day that is older than [`KEEP`].
const OLD: &str = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '39.5 days'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_goes_when_all_of_it_is_older_than_what_is_kept() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, old) = old_day(&system).await;
    subscribed.past(&system, 20, "dropped", OLD, OLD).await;
    subscribed.past(&system, 5, "succeeded", "now()", "now()").await;
    assert_eq!(rows(&system, &format!("deliveries_{}", old.to_string().replace('-', ""))).await, 20);
    let end = old.next_day().unwrap().midnight().assume_utc();
    let last = async |leader: &mut ledger::Leader, now| leader.days_old(now, KEEP).await.unwrap().pop();
    assert_ne!(last(&mut leader, end + KEEP - std::time::Duration::from_secs(1)).await, Some(old.into()));
    assert_eq!(last(&mut leader, end + KEEP).await, Some(old.into()));
    assert_eq!(leader.days_old(today(), KEEP).await.unwrap().len(), 10, "the young ones are not among them");
    for day in leader.days_old(today(), KEEP).await.unwrap() {
        drop_day(&mut leader, day).await;
    }
    for table in ["events", "deliveries", "attempts"] {
        assert_eq!(rows(&system, table).await, 5, "{table}");
    }
    assert_eq!((partitions(&system, old).await, partitions(&system, today().date()).await), (0, 3));
}

/// Returns the leader, and the day of [`OLD`] with its partitions.
async fn old_day(system: &System) -> (Leader, time::Date) {
    let (mut leader, old) = (leader(system).await, (today() - DAY * 40).date());
    leader.partitions_ensure(old).await.unwrap();
    // An autovacuum of the rows of a test has a lock for which a drop waits a tenth of a second only.
    let suffix = old.to_string().replace('-', "");
    for table in ["events", "deliveries", "attempts"] {
        system.sql(&format!("ALTER TABLE {table}_{suffix} SET (autovacuum_enabled = off)")).await;
    }
    (leader, old)
}

/// A leader that dies between the cancellation and the drop leaves deliveries that are cancelled, and a log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_still_waits_in_a_day_is_cancelled_before_the_day_is_dropped() {
    let system = TestSystem::prepared(options()).await;
    let (subscribed, paused) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
    let (mut first, old) = old_day(&system).await;
    subscribed.past(&system, 12_000, "dropped", OLD, OLD).await;
    subscribed.past(&system, 2, "retrying", &format!("{OLD} + interval '1 minute'"), OLD).await;
    subscribed.past(&system, 2, "pending", &format!("{OLD} - interval '1 minute'"), OLD).await;
    subscribed.past(&system, 3, "pending", &format!("{OLD} + interval '1 day'"), OLD).await;
    paused.past(&system, 6_000, "pending", &format!("{OLD} + interval '1 hour'"), OLD).await;
    system.sql(&format!("UPDATE webhooks SET is_active = false WHERE id = '{}'", paused.webhook)).await;
    system.sql("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE state = 'pending'").await;
    index(&mut first).await;
    let (mut removal, mut cancelled) = (Removal::of(old.into(), DayPart::Log), 0);
    // 18,004 rows of the index.
    for _ in 0..4 {
        let done = first.removal_step(&removal).await.unwrap();
        assert!(!done.is_dropped);
        cancelled += done.cancelled;
        removal = done.rest.unwrap();
    }
    drop(first);
    let state =
        async |state: &str| system.count(&format!("SELECT count(*) FROM deliveries WHERE state = '{state}'")).await;
    assert_eq!((cancelled, state("cancelled").await, rows(&system, "held_jobs").await), (6_004, 6_004, 3));
    let api = system.admin(subscribed.tenant).await;
    let log = api.log(&subscribed.webhook, "state=cancelled").await["data"].as_array().unwrap().clone();
    assert_eq!(log.len(), 4);
    for delivery in log {
        let path =
            format!("/api/v1/webhooks/{}/deliveries/{}/resend/", subscribed.webhook, delivery["id"].as_str().unwrap());
        let refused = api.ask(&path).await;
        assert_eq!((refused.status, &refused.json()["code"]), (409, &serde_json::json!("too_old")));
    }
    let mut next = leader(&system).await;
    drop_day(&mut next, old).await;
    assert_eq!((partitions(&system, old).await, rows(&system, "deliveries").await), (0, 3));
    assert_eq!(state("pending").await, 3, "another day's");
}

/// An activation releases held jobs while the day is being cancelled: each ends in one of both ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_activated_on_the_last_day_and_a_day_that_goes_do_not_block_one_another() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, old) = old_day(&system).await;
    subscribed.past(&system, 3_000, "pending", OLD, OLD).await;
    system.stop(Service::Api).await;
    system.sql("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries").await;
    system.sql(&format!("INSERT INTO held_webhooks VALUES ('{}', 1000, now(), now())", subscribed.webhook)).await;
    index(&mut leader).await;
    let relay = ledger(&system);
    let (released, removed) =
        tokio::join!(async { relay.jobs_release(1_000).await.unwrap().unwrap().deliveries }, async {
            leader.removal_step(&Removal::of(old.into(), DayPart::Log)).await.unwrap()
        });
    println!("{released} were released before they were cancelled");
    assert_eq!(removed.cancelled, 3_000, "whatever was released and not attempted is cancelled as well");
    assert_eq!(rows(&system, "held_jobs").await, 0);
    assert!(leader.removal_step(&removed.rest.unwrap()).await.unwrap().is_dropped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_stays_until_the_cursor_of_untried_deliveries_has_passed_it() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, old) = old_day(&system).await;
    subscribed.past(&system, 1, "pending", OLD, OLD).await;
    let early = leader.removal_step(&Removal::of(old.into(), DayPart::Log)).await.unwrap();
    assert!(early.rest.is_none() && !early.is_dropped && early.cancelled == 0, "{early:?}");
    let removed = remove(&mut leader, old, DayPart::Log).await;
    assert_eq!(removed, Outcome { steps: 2, looked: 1, cancelled: 1, is_dropped: true });
}

/// Thirty days are kept: the day that was over 31 days ago is needed for as long as the schedule lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_is_kept_for_the_length_of_the_schedule_and_a_day_beyond_what_is_accepted() {
    let options = Options { schedule: "1m,20h", ..options() };
    let system = TestSystem::prepared(options).await;
    let subscribed = Subscribed::new(&system).await;
    let mut leader = leader(&system).await;
    let noon = |days: u32| format!("date_trunc('day', now(), 'UTC') - interval '{days} days' + interval '12 hours'");
    for days in [31, 32, 33] {
        leader.partitions_ensure((today() - DAY * days).date()).await.unwrap();
        subscribed.past(&system, 1, "retrying", &noon(days), &noon(days)).await;
    }
    drop(leader);
    let ingest = system.start(Service::Ingest).await;
    until("the oldest one is cancelled", SOON, || async {
        metric(ingest, "webhooks_retention_ended_total").await >= 1.0
    })
    .await;
    until_metric(ingest, "webhooks_retention_behind_days", 0.0, SOON).await;
    // 44 hours after it was over: before 20:00, the second one is still kept.
    let left = if today().hour() < 20 { 2 } else { 1 };
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'retrying'").await, left);
}

/// Otherwise the leader would wait for it in turn, and give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_waits_for_the_drop_of_a_day_holds_no_table_that_is_locked_next() {
    let system = TestSystem::prepared(options()).await;
    let (subscribed, hot) = (Subscribed::new(&system).await, ledger(&system));
    system.stop(Service::Api).await;
    // The second time the statement is prepared.
    for _ in 0..2 {
        let dropping = system.database_session("BEGIN; LOCK TABLE ONLY deliveries").await;
        tokio::join!(store(&hot, &subscribed), async {
            system.wait_for_locked_out(1).await;
            dropping.batch_execute("LOCK TABLE ONLY events, ONLY attempts NOWAIT; COMMIT").await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_while_the_databases_clock_and_the_leaders_differ() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    old_day(&system).await;
    subscribed.past(&system, 2, "succeeded", OLD, OLD).await;
    subscribed.past(&system, 3, "succeeded", "now()", "now()").await;
    clock::make_settable(&system).await;
    // By more than is kept.
    clock::set_ahead(&system, 400 * 86_400).await;
    let ingest = system.start(Service::Ingest).await;
    until("retention had its turn", SOON, || async { metric(ingest, "webhooks_reconcile_passes_total").await >= 3.0 })
        .await;
    assert_eq!(metric(ingest, "webhooks_retention_days_total").await, 0.0);
    assert_eq!(rows(&system, "deliveries").await, 5);
    clock::set_ahead(&system, 59).await;
    until("the old deliveries are gone", SOON, || async { rows(&system, "deliveries").await == 3 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_old_day_delays_its_drop_and_nothing_else() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, old) = old_day(&system).await;
    subscribed.past(&system, 1, "dropped", OLD, OLD).await;
    let (reader, connection) = tokio_postgres::connect(&system.database_url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    reader.batch_execute("BEGIN; SELECT count(*) FROM deliveries").await.unwrap();
    let (hot, began) = (ledger(&system), Instant::now());
    index(&mut leader).await;
    // The reader does not hinder the cancellation.
    let removal = leader.removal_step(&Removal::of(old.into(), DayPart::Log)).await.unwrap().rest;
    let removal = removal.expect("it is to be dropped");
    let (dropped, stored) = tokio::join!(leader.removal_step(&removal), async {
        let mut slowest = std::time::Duration::ZERO;
        while began.elapsed() < std::time::Duration::from_secs(2) {
            let one = Instant::now();
            store(&hot, &subscribed).await;
            slowest = slowest.max(one.elapsed());
        }
        slowest
    });
    assert!(matches!(dropped, Err(LedgerError::Query(_))), "{dropped:?}");
    println!("the slowest write meanwhile took {stored:?}");
    assert!(stored < std::time::Duration::from_millis(1_500), "{stored:?}");
    assert_eq!(partitions(&system, old).await, 3);
    reader.batch_execute("COMMIT").await.unwrap();
    assert!(leader.removal_step(&removal).await.unwrap().is_dropped);
    assert_eq!(partitions(&system, old).await, 0);
}

async fn store(ledger: &ledger::Ledger, subscribed: &Subscribed) {
    let id = EventId::from(Uuid::now_v7());
    let timestamp: domain::Timestamp =
        today().format(&time::format_description::well_known::Rfc3339).unwrap().parse().unwrap();
    let event_type = EventType::QuoteClosed;
    let tenant = TenantId::from(subscribed.tenant);
    let event = NewEvent { id, timestamp, tenant, event_type, body: b"{}"[..].into(), traceparent: None };
    assert_eq!(ledger.events_store(&[event]).await.unwrap().deliveries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_leads_nobody_else_does_and_ingest_does_all_of_it_by_itself() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (first, _) = old_day(&system).await;
    subscribed.past(&system, 2_100, "succeeded", OLD, OLD).await;
    let ingest = system.start(Service::Ingest).await;
    let other = ledger(&system).candidate().await.unwrap().lead().await.unwrap();
    assert!(other.is_err(), "there is a leader");
    assert_eq!(metric(ingest, "webhooks_maintenance_leader").await, 0.0);
    assert_eq!(rows(&system, "deliveries").await, 2_100);
    drop(first);
    until("all is gone", SOON, || async { rows(&system, "events").await == 0 }).await;
    assert_eq!((rows(&system, "deliveries").await, rows(&system, "attempts").await), (0, 0));
    until_metric(ingest, "webhooks_retention_days_total", 10.0, SOON).await;
    assert_eq!(partitions(&system, (today() + DAY * 7).date()).await, 3);
}
