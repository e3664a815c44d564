//! Retention of whole days.

use std::time::Instant;

use domain::{EventId, EventType, TenantId};
use end_to_end::{
    clock,
    system::{Options, Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{Leader, LedgerError, NewEvent, Part, Removal};
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
        let (mut leader, old) = old_day(&system).await;
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

/// Returns the leader, and the day of [`OLD`] with its partitions.
async fn old_day(system: &System) -> (Leader, time::Date) {
    let (mut leader, old) = (leader(system).await, (today() - DAY * 40).date());
    leader.partitions_ensure(old).await.unwrap();
    (leader, old)
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
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 12_000, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        let before = tables(&system, old).await;
        let log = remove(&mut leader, old, Part::Log).await;
        // A look at 5,000 rows, the preparation, three copies and the replacement.
        assert_eq!(log, Outcome { steps: 6, looked: 17_001, copied: 1, is_dropped: true });
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
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 5, "retrying", OLD, OLD).await;
        subscribed.past(&system, 8_000, "succeeded", &format!("{OLD} + interval '1 second'"), OLD).await;
        subscribed.past(&system, 5, "retrying", &format!("{OLD} + interval '1 minute'"), OLD).await;
        let waiting = system.sql("SELECT id::text FROM deliveries WHERE state = 'retrying' ORDER BY id").await;
        let waiting: Vec<String> = waiting.iter().map(|row| row.get(0)).collect();
        // A step after the first copy: a look, a preparation, a copy.
        remove_with(&mut leader, old, Part::Log, async |step| {
            if step != 3 {
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
        let events = "SELECT count(*) FROM events AS e JOIN deliveries AS d ON d.event_id = e.id";
        // Those of the two that ended after they were copied. None of an erased delivery is among them.
        assert_eq!((system.count(events).await, rows(&system, "events").await), (4, 6));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_ends_in_a_transaction_during_its_copy_is_not_kept_as_waiting() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 1, "retrying", OLD, OLD).await;
        subscribed.past(&system, 1, "succeeded", &format!("{OLD} + interval '1 second'"), OLD).await;
        let (writer, connection) = tokio_postgres::connect(&system.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut removal = Removal::of(old.into(), Part::Log);
        for _look_and_preparation in 0..2 {
            removal = leader.removal_step(&removal).await.unwrap().rest.unwrap();
        }
        writer.batch_execute("BEGIN; UPDATE deliveries SET state = 'succeeded'").await.unwrap();
        let commit = async {
            let waits =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            eventually("the copy waits", SOON, || async { (system.count(waits).await > 0).then_some(()) }).await;
            writer.batch_execute("COMMIT").await.unwrap();
        };
        // It waits for half a second at the most. Then the step is taken again.
        let (copied, ()) = tokio::join!(leader.removal_step(&removal), commit);
        let mut rest = copied.map_or(Some(removal), |copied| copied.rest);
        while let Some(removal) = rest {
            let done = leader.removal_step(&removal).await.unwrap();
            assert_eq!(done.copied, 0);
            rest = done.rest;
        }
        assert_eq!((rows(&system, "deliveries").await, partitions(&system, old).await), (0, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waiting_deliveries_than_one_step_copies_are_all_kept() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 1, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1_200, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        // A look, the preparation, copies of 500, 500 and 200, and the replacement.
        let expected = Outcome { steps: 6, looked: 2 * 1_201, copied: 1_200, is_dropped: true };
        assert_eq!(remove(&mut leader, old, Part::Log).await, expected);
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1_200, "{table}");
        }
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
        assert_eq!(remove(&mut next, old, Part::Log).await.copied, 1);
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        assert_eq!(system.count(LEFT_BEHIND).await, 0);
    })
    .await;
}

/// As an operator may do by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_whose_copy_somebody_drops_begins_anew() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 1, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        for (part, table) in [(Part::Bodies, "events"), (Part::Log, "deliveries")] {
            let drop = format!("DROP TABLE {table}_{}_kept", old.to_string().replace('-', ""));
            let removed = remove_with(&mut leader, old, part, async |step| {
                if step == 3 {
                    system.sql(&drop).await;
                }
            })
            .await;
            // A look, twice the preparation and the copy, the replacement, and the step that finds no copy.
            assert_eq!(removed, Outcome { steps: 7, looked: 6, copied: 2, is_dropped: true }, "{part:?}");
        }
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, table).await, 1, "{table}");
        }
        assert_eq!(system.count(LEFT_BEHIND).await, 0);
    })
    .await;
}

/// Otherwise the leader would wait for it in turn, and give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_waits_for_the_replacement_of_a_day_holds_no_table_that_it_locks_next() {
    System::prepared(options(), async |system| {
        let (subscribed, hot) = (Subscribed::new(&system).await, ledger(&system));
        system.stop(Service::Api).await;
        // The second time the statement is prepared.
        for _ in 0..2 {
            let replacement = system.database_session("BEGIN; LOCK TABLE ONLY deliveries").await;
            tokio::join!(store(&hot, &subscribed), async {
                system.wait_for_locked_out(1).await;
                replacement.batch_execute("LOCK TABLE ONLY events, ONLY attempts NOWAIT; COMMIT").await.unwrap();
            });
        }
    })
    .await;
}

/// Tables and triggers of a removal that is under way, or was when its leader died.
const LEFT_BEHIND: &str = "SELECT (SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_kept') \
                           + (SELECT count(*) FROM pg_trigger WHERE tgname = 'repeat_in_kept')";

/// The retention is longer by now than it was for the leader that died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_leader_left_of_a_day_goes_also_if_the_day_stays() {
    let settings = [("RECONCILE__INTERVAL", "100ms".to_owned()), ("RETENTION__KEEP", "100days".to_owned())];
    System::prepared(Options { settings: settings.to_vec(), ..Options::default() }, async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 3, "dropped", OLD, OLD).await;
        let looked = leader.removal_step(&Removal::of(old.into(), Part::Log)).await.unwrap();
        leader.removal_step(&looked.rest.unwrap()).await.unwrap();
        assert_eq!(system.count(LEFT_BEHIND).await, 4, "three tables and a trigger");
        drop(leader);
        system.start(Service::Ingest).await;
        eventually("they are gone", SOON, || async { (system.count(LEFT_BEHIND).await == 0).then_some(()) }).await;
        assert_eq!((partitions(&system, old).await, rows(&system, "deliveries").await), (3, 3));
    })
    .await;
}

/// As in a rolling restart: the api-service keeps the day for longer than the leader does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_sent_again_while_its_day_is_removed_is_kept_and_sent() {
    let settings = vec![("RETENTION__KEEP", "100days".to_owned())];
    System::prepared(Options { settings, ..Options::default() }, async |system| {
        let subscribed = Subscribed::new(&system).await;
        let api = system.admin(subscribed.tenant).await;
        let mut leader = leader(&system).await;
        for (days, part) in [(40, Part::Log), (39, Part::Bodies)] {
            let old = (today() - DAY * days).date();
            leader.partitions_ensure(old).await.unwrap();
            let noon = format!("{OLD} + interval '{} days'", 40 - days);
            subscribed.past(&system, 5, "dropped", &noon, &noon).await;
            subscribed.past(&system, 6_000, "succeeded", &format!("{noon} + interval '1 second'"), &noon).await;
            let dropped = system.sql("SELECT id::text FROM deliveries WHERE state = 'dropped' ORDER BY id").await;
            let dropped: Vec<String> = dropped.iter().map(|row| row.get(0)).collect();
            let resend = async |number: usize| {
                let path = format!("/api/v1/webhooks/{}/deliveries/{}/resend/", subscribed.webhook, dropped[number]);
                assert_eq!(api.ask(&path).await.status, 202);
            };
            let mut resent = 0;
            let removed = remove_with(&mut leader, old, part, async |step| {
                // Before each further step one more. Before the first one, nothing waits.
                if step > 0 {
                    resend(resent).await;
                    resent += 1;
                }
            })
            .await;
            assert!(removed.is_dropped && resent > 1, "{removed:?}");
            let bodies = format!(
                "SELECT count(*) FROM deliveries AS d JOIN events AS e ON e.id = d.event_id \
                 JOIN attempts AS a ON a.delivery_id = d.id WHERE d.state = 'pending' AND d.id = ANY ('{{{}}}')",
                dropped.join(", ")
            );
            let expected = i64::try_from(resent).unwrap();
            assert_eq!(system.count(&bodies).await, expected, "{part:?}");
            assert_eq!(system.count(LEFT_BEHIND).await, 0);
        }
        let waiting = usize::try_from(system.count("SELECT count(*) FROM deliveries WHERE state = 'pending'").await);
        system.start(Service::Dispatcher).await;
        subscribed.receiver.wait_for(waiting.unwrap(), SOON).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_deleted_webhook_keeps_no_day() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
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
        old_day(&system).await;
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
async fn a_day_of_which_the_waiting_deliveries_are_copied_is_not_behind_at_the_next_look_either() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (leader, old) = old_day(&system).await;
        drop(leader);
        subscribed.past(&system, 2, "succeeded", OLD, OLD).await;
        subscribed.past(&system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
        clock::make_settable(&system).await;
        let ingest = system.start(Service::Ingest).await;
        let behind = async || metric(ingest, "webhooks_retention_behind_days").await;
        eventually("all old days are dropped or copied", SOON, || async {
            (rows(&system, "deliveries").await == 1 && behind().await == 0.0).then_some(())
        })
        .await;
        let passes = async |more: f64| {
            let enough = metric(ingest, "webhooks_reconcile_passes_total").await + more;
            eventually("retention had its turn", SOON, || async {
                (metric(ingest, "webhooks_reconcile_passes_total").await >= enough).then_some(())
            })
            .await;
        };
        // Retention looks again as soon as the clocks agree again.
        clock::set_ahead(&system, 120).await;
        passes(2.0).await;
        clock::set_ahead(&system, 0).await;
        passes(3.0).await;
        assert_eq!((behind().await, partitions(&system, old).await), (0.0, 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_old_day_delays_its_drop_and_nothing_else() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (mut leader, old) = old_day(&system).await;
        subscribed.past(&system, 1, "dropped", OLD, OLD).await;
        let (reader, connection) = tokio_postgres::connect(&system.database_url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        reader.batch_execute("BEGIN; SELECT count(*) FROM deliveries").await.unwrap();
        let (hot, began) = (ledger(&system), Instant::now());
        let mut removal = Removal::of(old.into(), Part::Log);
        // The reader does not hinder the look, the preparation and the copy.
        for _ in 0..3 {
            removal = leader.removal_step(&removal).await.unwrap().rest.expect("it is to be dropped");
        }
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
        let (first, _) = old_day(&system).await;
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
