//! Retention of whole days.

use std::time::Instant;

use domain::{EventId, EventType, TenantId};
use end_to_end::{
    clock,
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{Cleaning, LedgerError, NewEvent};
use uuid::Uuid;

use crate::retention::{
    DAY, KEEP, Subscribed, clean, drop_day, leader, ledger, options, partitions, rows, search, today,
};

/// Noon of a day that is older than [`KEEP`].
const OLD: &str = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '39.5 days'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_goes_when_all_of_it_is_older_than_what_is_kept() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 20, "dropped", OLD, OLD).await;
        subscribed.past(&system, 5, "succeeded", "now()", "now()").await;
        assert_eq!(rows(&system, &format!("deliveries_{}", old.to_string().replace('-', ""))).await, 20);
        let end = old.next_day().unwrap().midnight().assume_utc();
        let last = async |leader: &mut ledger::Leader, now| leader.days_old(now, KEEP).await.unwrap().pop();
        let hour = std::time::Duration::from_secs(60 * 60);
        let just_before = last(&mut leader, end + KEEP + hour - std::time::Duration::from_secs(1)).await;
        assert_ne!(just_before, Some(old.into()), "what was found to be young may still be on its way");
        assert_eq!(last(&mut leader, end + KEEP + hour).await, Some(old.into()));
        assert_eq!(leader.days_old(today(), KEEP).await.unwrap().len(), 10, "the young ones are not among them");
        for day in leader.days_old(today(), KEEP).await.unwrap() {
            drop_day(&mut leader, day).await;
        }
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 5, "{table}");
        }
        assert_eq!((partitions(&system, old).await, partitions(&system, today().date()).await), (0, 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_in_which_something_waits_is_cleaned_of_everything_else_and_goes_once_that_is_delivered() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 12_000, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        assert_eq!(search(&mut leader, old).await.0.unwrap_err(), old.into());
        assert_eq!(rows(&system, "deliveries").await, 12_001, "nothing has happened");
        let chunks = clean(&mut leader, Cleaning::of_day(old.into(), today() - KEEP)).await;
        assert!(chunks.len() >= 6 && chunks.iter().all(|rows| *rows <= 5_000), "{chunks:?}");
        assert_eq!(chunks.iter().sum::<u64>(), 24_000);
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        drop(leader);
        // Its job is not on the queues: a rebuild enqueues it.
        system.lose_generation().await;
        let ingest = system.start(Service::Ingest).await;
        system.start(Service::Dispatcher).await;
        subscribed.receiver.wait_for(1, SOON).await;
        let done = "SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 2";
        eventually("it is recorded", SOON, || async { (system.count(done).await == 1).then_some(()) }).await;
        assert_eq!(metric(ingest, "webhooks_maintenance_leader").await, 1.0);
        system.stop(Service::Ingest).await;
        drop_day(&mut crate::retention::leader(&system).await, old).await;
    })
    .await;
}

/// Otherwise a webhook that is dead for ever would keep all days.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_was_held_for_a_slow_receiver_for_as_long_as_history_is_kept_ends() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 20, "pending", OLD, OLD).await;
        subscribed.past(&system, 5, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        let hold = "INSERT INTO held_jobs (webhook_id, delivery_id, reason, held_at) SELECT webhook_id, id, 'slow', created_at FROM deliveries";
        system.sql(hold).await;
        let mut cleaned = async || {
            let cleaned = leader.clean(&Cleaning::of_day(old.into(), today() - KEEP)).await.unwrap();
            assert_eq!(cleaned.rows, cleaned.ended);
            cleaned.ended
        };
        assert_eq!(cleaned().await, 0, "the webhook was changed since, for example activated");
        system.sql("UPDATE webhooks SET updated_at = now() - interval '40 days', is_active = false").await;
        assert_eq!(cleaned().await, 0, "a pause is no end");
        system.sql("UPDATE webhooks SET is_active = true").await;
        let newest = "WHERE delivery_id = (SELECT delivery_id FROM held_jobs ORDER BY delivery_id DESC LIMIT 1)";
        system.sql(&format!("UPDATE held_jobs SET held_at = now() {newest}")).await;
        assert_eq!(cleaned().await, 24, "one was tried lately");
        system.sql("UPDATE held_jobs SET held_at = now() - interval '40 days', reason = 'paused'").await;
        assert_eq!(cleaned().await, 0, "its reason is a pause");
        system.sql("UPDATE held_jobs SET reason = 'slow'").await;
        assert_eq!(cleaned().await, 1);
        assert_eq!(rows(&system, "held_jobs").await, 0);
        drop_day(&mut leader, old).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_is_searched_in_bounded_steps_to_its_very_last_delivery() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 20_000, "succeeded", OLD, OLD).await;
        let (found, steps) = search(&mut leader, old).await;
        assert_eq!((found.unwrap().day(), steps), (old.into(), 3));
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 minute'"), OLD).await;
        let (found, steps) = search(&mut leader, old).await;
        assert_eq!((found.unwrap_err(), steps), (old.into(), 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_while_the_databases_clock_and_the_leaders_differ() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        drop(leader);
        subscribed.past(&system, 2, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 3, "succeeded", "now()", "now()").await;
        clock::make_settable(&system).await;
        // By more than is kept.
        clock::set_ahead(&system, 400 * 86_400).await;
        let ingest = system.start(Service::Ingest).await;
        eventually("retention had its turn", SOON, || async {
            (metric(ingest, "webhooks_reconcile_passes_total").await >= 3.0).then_some(())
        })
        .await;
        assert_eq!(metric(ingest, "webhooks_retention_days_total").await, 0.0);
        assert_eq!(rows(&system, "deliveries").await, 5);
        clock::set_ahead(&system, 59).await;
        eventually("the old deliveries are gone", SOON, || async {
            (rows(&system, "deliveries").await == 3).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_old_day_delays_its_drop_and_nothing_else() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 1, "dropped", OLD, OLD).await;
        let (reader, connection) = tokio_postgres::connect(&system.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        reader.batch_execute("BEGIN; SELECT count(*) FROM deliveries").await.unwrap();
        let (hot, began) = (ledger(&system), Instant::now());
        let finished = search(&mut leader, old).await.0.unwrap();
        let (dropped, stored) = tokio::join!(leader.day_drop(&finished), async {
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
        leader.day_drop(&finished).await.unwrap();
        assert_eq!(partitions(&system, old).await, 0);
    })
    .await;
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
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut first, old) = (leader(&system).await, (today() - DAY * 40).date());
        first.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 2_100, "succeeded", OLD, OLD).await;
        let ingest = system.start(Service::Ingest).await;
        let other = ledger(&system).candidate().await.unwrap().lead().await.unwrap();
        assert!(other.is_err(), "there is a leader");
        assert_eq!(metric(ingest, "webhooks_maintenance_leader").await, 0.0);
        assert_eq!(rows(&system, "deliveries").await, 2_100);
        drop(first);
        eventually("all is gone", SOON, || async { (rows(&system, "events").await == 0).then_some(()) }).await;
        assert_eq!((rows(&system, "deliveries").await, rows(&system, "attempts").await), (0, 0));
        eventually("all days of then are gone", SOON, || async {
            (metric(ingest, "webhooks_retention_days_total").await == 10.0).then_some(())
        })
        .await;
        assert_eq!(partitions(&system, (today() + DAY * 7).date()).await, 3);
    })
    .await;
}
