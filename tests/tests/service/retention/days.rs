//! Retention of whole days.

use std::time::Instant;

use domain::{EventId, EventType, TenantId};
use end_to_end::{
    clock,
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{LedgerError, NewEvent, Part, Removal};
use uuid::Uuid;

use crate::retention::{
    DAY, KEEP, Outcome, Subscribed, drop_day, leader, ledger, options, partitions, remove, remove_with, rows, today,
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

/// The oids of a day's partitions: the same tables, or others.
async fn tables(system: &System, day: time::Date) -> Vec<u32> {
    let suffix = day.to_string().replace('-', "");
    let oids = format!("SELECT oid FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_{suffix}' ORDER BY relname");
    system.sql(&oids).await.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_day_in_which_something_waits_only_that_is_kept_in_new_tables_and_it_goes_once_that_is_delivered() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 12_000, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        let before = tables(&system, old).await;
        let log = remove(&mut leader, old, Part::Log).await;
        assert_eq!(log, Outcome { steps: 8, looked: 24_002, copied: 1, is_dropped: true });
        let bodies = remove(&mut leader, old, Part::Bodies).await;
        assert_eq!((bodies.looked, bodies.copied, bodies.is_dropped), (24_002, 1, true));
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        let after = tables(&system, old).await;
        assert!(after.len() == 3 && after.iter().all(|table| !before.contains(table)), "{before:?} {after:?}");
        // Nothing would be gained by another copy.
        for part in [Part::Log, Part::Bodies] {
            assert_eq!(
                remove(&mut leader, old, part).await,
                Outcome { steps: 1, looked: 1, copied: 0, is_dropped: false }
            );
        }
        assert_eq!(tables(&system, old).await, after);
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
        assert_eq!(partitions(&system, old).await, 0);
    })
    .await;
}

/// The first delivery of 10,000 is copied by the first of two steps, the last one by the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_while_a_day_is_copied_is_kept_as_it_is_at_last() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 5, "retrying", OLD, OLD).await;
        subscribed.past(&system, 8_000, "succeeded", &format!("{OLD} + interval '1 second'"), OLD).await;
        subscribed.past(&system, 5, "retrying", &format!("{OLD} + interval '1 minute'"), OLD).await;
        let waiting = system.sql("SELECT id::text FROM deliveries WHERE state = 'retrying' ORDER BY id").await;
        let waiting: Vec<String> = waiting.iter().map(|row| row.get(0)).collect();
        // A step after the first copy: 2 counts, a preparation, a copy.
        remove_with(&mut leader, old, Part::Log, async |step| {
            if step != 4 {
                return;
            }
            for part in [&waiting[..5], &waiting[5..]] {
                let [cancelled, recorded, succeeded, erased, _] = part else { panic!("there are five") };
                system.sql(&format!("UPDATE deliveries SET state = 'cancelled' WHERE id = '{cancelled}'")).await;
                system
                    .sql(&format!(
                        "WITH done AS (UPDATE deliveries SET attempts = 2 WHERE id = '{recorded}' RETURNING id) \
                         INSERT INTO attempts SELECT id, 2, 'https://localhost/', now(), now(), 1, 'timeout', 500, '', '' FROM done"
                    ))
                    .await;
                system.sql(&format!("UPDATE deliveries SET state = 'succeeded' WHERE id = '{succeeded}'")).await;
                system.sql(&format!("DELETE FROM deliveries WHERE id = '{erased}'")).await;
            }
        })
        .await;
        let left = system.sql("SELECT id::text, attempts::bigint FROM deliveries ORDER BY id").await;
        let left: Vec<(String, i64)> = left.iter().map(|row| (row.get(0), row.get(1))).collect();
        let expected = [(1, 2), (4, 1), (6, 2), (9, 1)].map(|(place, attempts)| (waiting[place].clone(), attempts));
        assert_eq!(left, expected);
        let attempts = "SELECT count(*) FROM attempts JOIN deliveries ON id = delivery_id";
        assert_eq!((rows(&system, "attempts").await, system.count(attempts).await), (6, 6));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_while_it_copies_a_day_leaves_nothing_that_harms() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let old = (today() - DAY * 40).date();
        let mut first = leader(&system).await;
        first.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 2, "retrying", OLD, OLD).await;
        subscribed.past(&system, 8_000, "succeeded", &format!("{OLD} + interval '1 second'"), OLD).await;
        for part in [Part::Log, Part::Bodies] {
            let mut removal = Removal::of(old.into(), part);
            loop {
                let done = first.removal_step(&removal).await.unwrap();
                removal = done.rest.expect("it is not over");
                if done.copied > 0 {
                    break;
                }
            }
        }
        drop(first);
        let one = "(SELECT id FROM deliveries WHERE state = 'retrying' LIMIT 1)";
        system.sql(&format!("UPDATE deliveries SET state = 'succeeded' WHERE id = {one}")).await;
        let mut next = leader(&system).await;
        for part in [Part::Log, Part::Bodies] {
            assert_eq!(remove(&mut next, old, part).await.copied, 1, "{part:?}");
        }
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        let left_behind = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_kept'";
        assert_eq!(system.count(left_behind).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_deleted_webhook_keeps_no_day() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = (leader(&system).await, (today() - DAY * 40).date());
        leader.partitions_ensure(old).await.unwrap();
        subscribed.past(&system, 3, "retrying", OLD, OLD).await;
        // Its cancellation has ended before they were stored, or nobody has begun it.
        system.sql("UPDATE webhooks SET is_active = false, deleted_at = now()").await;
        drop_day(&mut leader, old).await;
        assert_eq!((partitions(&system, old).await, rows(&system, "unsuccessful_deliveries").await), (0, 3));
        crate::retention::clear(&mut leader).await;
        assert_eq!(rows(&system, "unsuccessful_deliveries").await, 0);
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
        let counted = leader.removal_step(&Removal::of(old.into(), Part::Log)).await.unwrap();
        let removal = counted.rest.expect("it is to be dropped");
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
