//! Whole days.

use std::time::Instant;

use domain::{EventId, EventType, TenantId};
use end_to_end::{
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{Cleaning, Dropped, LedgerError, NewEvent};
use uuid::Uuid;

use crate::{DAY, KEEP, Subscribed, clean, leader, ledger, options, partitions, rows, today};

/// A day that is older than [`KEEP`], at its noon.
const OLD: &str = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '39.5 days'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_goes_when_all_of_it_is_older_than_what_is_kept() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        assert_eq!(leader.partitions_ensure(old).await.unwrap(), 0);
        subscribed.past(&system, 20, "dropped", OLD, OLD).await;
        subscribed.past(&system, 5, "succeeded", "now()", "now()").await;
        assert_eq!(rows(&system, &format!("deliveries_{}", old.to_string().replace('-', ""))).await, 20);
        let end = old.next_day().unwrap().midnight().assume_utc();
        let last = async |leader: &mut ledger::Leader, now| leader.days_old(now, KEEP).await.unwrap().pop();
        let just_before = last(&mut leader, end + KEEP - std::time::Duration::from_secs(1)).await;
        assert_ne!(just_before, Some(old.into()), "a second of it is not old enough");
        assert_eq!(last(&mut leader, end + KEEP).await, Some(old.into()));
        assert_eq!(leader.days_old(today(), KEEP).await.unwrap().len(), 10, "the young ones are not among them");
        for day in leader.days_old(today(), KEEP).await.unwrap() {
            assert_eq!(leader.day_drop(day).await.unwrap(), Dropped::Gone);
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
        subscribed.past(&system, 2_500, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        assert_eq!(leader.day_drop(old.into()).await.unwrap(), Dropped::Waiting);
        assert_eq!(rows(&system, "deliveries").await, 2_501, "nothing has happened");
        let bites = clean(&mut leader, Cleaning::of_day(old.into(), today() - KEEP)).await;
        assert!(bites.len() >= 6 && bites.iter().all(|rows| *rows <= 1_000), "{bites:?}");
        assert_eq!(bites.iter().sum::<u64>(), 5_000);
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        drop(leader);
        // Its job is not on the queues: a rebuild brings it there.
        system.lose_generation().await;
        let ingest = system.start(Service::Ingest).await;
        system.start(Service::Dispatcher).await;
        subscribed.receiver.wait_for(1, SOON).await;
        let done = "SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 2";
        eventually("it is recorded", SOON, || async { (system.count(done).await == 1).then_some(()) }).await;
        assert_eq!(metric(ingest, "webhooks_maintenance_leader").await, 1.0);
        system.stop(Service::Ingest).await;
        let mut leader = crate::leader(&system).await;
        assert_eq!(leader.day_drop(old.into()).await.unwrap(), Dropped::Gone);
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
        let (dropped, stored) = tokio::join!(leader.day_drop(old.into()), async {
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
        assert_eq!(leader.day_drop(old.into()).await.unwrap(), Dropped::Gone);
    })
    .await;
}

async fn store(ledger: &ledger::Ledger, subscribed: &Subscribed) {
    let id = EventId::from(Uuid::now_v7());
    let timestamp: domain::Timestamp =
        today().format(&time::format_description::well_known::Rfc3339).unwrap().parse().unwrap();
    let event_type = EventType::QuoteClosed;
    let tenant = TenantId::from(subscribed.tenant);
    let event = NewEvent { id, timestamp, tenant, event_type, body: b"{}"[..].into() };
    assert_eq!(ledger.events_store(&[event]).await.unwrap().deliveries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_leads_nobody_else_does_and_ingest_does_all_of_it_by_itself() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut first, old) = (leader(&system).await, (today() - DAY * 40).date());
        first.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 2_100, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 3, "succeeded", "timestamptz '2001-02-03 04:05 UTC'", OLD).await;
        let ingest = system.start(Service::Ingest).await;
        let other = ledger(&system).candidate().await.unwrap().lead().await.unwrap();
        assert!(other.is_err(), "there is a leader");
        assert_eq!(metric(ingest, "webhooks_maintenance_leader").await, 0.0);
        assert_eq!(rows(&system, "deliveries").await, 2_103);
        drop(first);
        eventually("all is gone", SOON, || async { (rows(&system, "events").await == 0).then_some(()) }).await;
        assert_eq!((rows(&system, "deliveries").await, rows(&system, "attempts").await), (0, 0));
        assert_eq!(metric(ingest, "webhooks_retention_days_total").await, 10.0);
        assert_eq!(metric(ingest, "webhooks_retention_rows_total").await, 6.0);
        assert_eq!(partitions(&system, (today() + DAY * 7).date()).await, 3);
    })
    .await;
}
