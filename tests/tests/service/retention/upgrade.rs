//! The upgrade of a ledger in which an event is (tenant, id, millisecond) and odd timestamps have default partitions.

use std::sync::Arc;

use domain::EventType;
use end_to_end::{
    events::Event,
    servers::repository,
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{NewEvent, Stored};
use uuid::Uuid;

use crate::retention::{KEEP, Subscribed, clean, leader, ledger, options, rows, today};

/// The last migration of that version.
const VERSION: &str = "2026-11-22-000005";

/// Takes the schema back to a version, by the migrations' `down.sql`.
async fn downgrade(system: &System, to: &str) {
    let folder = repository().join("crates/ledger/migrations");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut later: Vec<_> = names.filter(|name| &name[..to.len()] > to).collect();
    later.sort();
    for name in later.into_iter().rev() {
        let down = std::fs::read_to_string(folder.join(&name).join("down.sql")).unwrap();
        let version = name[..to.len()].replace('-', "");
        let forget = format!("DELETE FROM __diesel_schema_migrations WHERE version = '{version}'");
        system.database_session(&format!("BEGIN; {down}; {forget}; COMMIT")).await;
    }
}

/// Inserts events that fired at `at`, a millisecond apart, and their deliveries, with the ids of that version.
async fn stored_before(system: &System, subscribed: &Subscribed, count: usize, state: &str, at: &str) {
    let Subscribed { tenant, webhook, .. } = subscribed;
    system
        .sql(&format!(
            "WITH past AS MATERIALIZED ( \
                SELECT gen_random_uuid() AS event, \
                       date_trunc('milliseconds', {at}) + i * interval '1 millisecond' AS at FROM generate_series(1, {count}) AS i \
             ), named AS MATERIALIZED ( \
                SELECT *, encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit( \
                    decode(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0'), 'hex') || \
                    substring(sha256(uuid_send('{webhook}') || uuid_send(event)) FOR 10), \
                    55, 1), 54, 0), 53, 0), 52, 0), 71, 1), 70, 0), 'hex')::uuid AS id FROM past \
             ), event AS ( \
                INSERT INTO events (occurred_at, id, tenant_id, event_type, body, received_at) \
                SELECT at, event, '{tenant}', 'quote.closed', '{{}}', now() - interval '31 days' FROM past \
             ), attempt AS ( \
                INSERT INTO attempts (delivery_id, attempt, url, signature, started_at, duration_us, outcome, answer_head) \
                SELECT id, 1, 'https://localhost/', '', at, 1000, 'success', '' FROM named WHERE '{state}' <> 'pending' \
             ) INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at) \
               SELECT id, '{webhook}', event, 'quote.closed', '{state}', CASE WHEN '{state}' = 'pending' THEN 0 ELSE 1 END, \
                      now() - interval '31 days' FROM named"
        ))
        .await;
}

/// The latest event of [`stored_before`], as it was published, and the id of its delivery.
async fn latest(system: &System, subscribed: &Subscribed) -> (Event, Uuid) {
    let rows = system
        .sql(
            "SELECT d.event_id::text, d.id::text, to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') \
             FROM deliveries AS d JOIN events AS e ON e.id = d.event_id WHERE e.occurred_at <= now() ORDER BY d.id DESC LIMIT 1",
        )
        .await;
    let id = |column| rows[0].get::<_, &str>(column).parse::<Uuid>().unwrap();
    let event = Event::now(EventType::QuoteClosed, subscribed.tenant);
    (Event { id: id(0), timestamp: rows[0].get(2), ..event }, id(1))
}

fn stored(event: &Event) -> NewEvent {
    NewEvent {
        id: event.id.into(),
        timestamp: event.timestamp.parse().unwrap(),
        tenant: event.tenant.into(),
        event_type: event.event_type,
        body: b"{}"[..].into(),
        traceparent: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_was_stored_before_the_upgrade_keeps_its_delivery_and_one_of_another_type_is_another() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        system.sql("UPDATE webhooks SET events = '{quote.closed,quote.accepted}'").await;
        downgrade(&system, VERSION).await;
        stored_before(&system, &subscribed, 1, "pending", "now() - interval '1 minute'").await;
        let (event, delivery) = latest(&system, &subscribed).await;
        let ledger = ledger(&system);
        assert_eq!(ledger.migrate().await.unwrap().first().map(String::as_str), Some("20261123000006"));
        assert_eq!(ledger.migrate().await.unwrap(), Vec::<String>::new());

        assert_eq!(ledger.events_store(&[stored(&event)]).await.unwrap(), Stored::default());
        assert_eq!(ledger.deliveries_untried(&[&stored(&event)]).await.unwrap(), [delivery.into()]);
        system.start(Service::Dispatcher).await;
        let ingest = system.start(Service::Ingest).await;
        let accepted = Event { event_type: EventType::QuoteAccepted, ..event.clone() };
        system.upstream.publish(&[event, accepted]).await;
        let got = subscribed.receiver.wait_for(1, SOON).await;
        assert_eq!(got[0].header("x-service-event"), Some("quote.accepted"));
        assert_ne!(got[0].header("x-service-webhook-id"), Some(delivery.to_string().as_str()));
        eventually("both are judged", SOON, || async {
            (metric(ingest, "webhooks_ingest_events_total").await == 2.0).then_some(())
        })
        .await;
        assert_eq!((rows(&system, "events").await, rows(&system, "deliveries").await), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_default_partitions_are_found_where_they_belong_and_odd_ones_go_in_the_end() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        downgrade(&system, VERSION).await;
        let soon = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval '20 days'";
        for (count, state, at) in [
            (6_000, "succeeded", soon),
            (1_500, "succeeded", "timestamptz '1970-01-01 UTC'"),
            (3, "dropped", "timestamptz '9999-12-31 UTC'"),
            (1, "pending", "timestamptz '9999-12-31 12:00 UTC'"),
            (7, "dropped", "timestamptz '2001-02-03 04:05 UTC'"),
        ] {
            stored_before(&system, &subscribed, count, state, at).await;
        }
        for table in ["events", "deliveries"] {
            assert_eq!(rows(&system, &format!("{table}_default")).await, 7_511);
        }
        ledger(&system).migrate().await.unwrap();
        assert_eq!(rows(&system, "unsuccessful_deliveries").await, 3 + 7, "what did not go well before is known");
        for (table, suffix, count) in [
            ("events", "before", 1_500),
            ("deliveries", "before", 1_500),
            ("attempts", "before", 1_500),
            ("deliveries", "after", 4),
            ("attempts", "after", 3),
            ("deliveries", "20010203", 7),
            ("deliveries", &(today() + crate::retention::DAY * 20).date().to_string().replace('-', ""), 6_000),
        ] {
            assert_eq!(rows(&system, &format!("{table}_{suffix}")).await, count, "{table} {suffix}");
        }
        assert_eq!(system.count("SELECT count(*) FROM pg_class WHERE relname LIKE '%_default'").await, 0);

        let mut leader = leader(&system).await;
        let before = today() - KEEP;
        for (round, left) in [(1, 4 - 3), (2, 1)] {
            let cleanings = leader.odd_days_clean(before).await.unwrap();
            assert_eq!(cleanings.len(), if round == 1 { 2 } else { 1 }, "the empty one is gone");
            for cleaning in cleanings {
                clean(&mut leader, cleaning).await;
            }
            assert_eq!(rows(&system, "deliveries_after").await, left, "what waits stays");
        }
        assert_eq!(system.count("SELECT count(*) FROM pg_class WHERE relname = 'deliveries_before'").await, 0);
        system.sql("UPDATE deliveries SET state = 'cancelled' WHERE state = 'pending'").await;
        for cleaning in leader.odd_days_clean(before).await.unwrap() {
            clean(&mut leader, cleaning).await;
        }
        assert!(leader.odd_days_clean(before).await.unwrap().is_empty());
        assert_eq!(system.count("SELECT count(*) FROM pg_class WHERE relname = 'events_after'").await, 0);
        assert_eq!(rows(&system, "deliveries").await, 6_007, "the others go with their days");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_stored_while_their_new_key_is_built() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        downgrade(&system, "2026-11-23-000006").await;
        let table = format!("events_{}", today().date().to_string().replace('-', ""));
        let insert = |table: &str| {
            format!(
                "INSERT INTO {table} (occurred_at, id, tenant_id, event_type, body) \
                 SELECT now(), gen_random_uuid(), '{}', 'quote.closed', ''",
                subscribed.tenant
            )
        };
        // The build of the index waits for those who write to the partition when it begins.
        let writer = system.database_session(&format!("BEGIN; {}", insert(&table))).await;
        let migrating = [(); 2].map(|()| {
            let system = Arc::clone(&system);
            tokio::spawn(async move { ledger(&system).migrate().await.unwrap() })
        });
        let building = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND query LIKE 'CREATE UNIQUE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'";
        eventually("the key is being built", SOON, || async { (system.count(building).await == 1).then_some(()) })
            .await;
        system.sql(&insert("events")).await;
        assert!(migrating.iter().all(|one| !one.is_finished()));
        writer.batch_execute("COMMIT").await.unwrap();
        let [one, other] = migrating;
        let applied = [one.await.unwrap().len(), other.await.unwrap().len()];
        assert!(applied.iter().min() == Some(&0) && applied.iter().max() >= Some(&2), "one of them: {applied:?}");
        assert_eq!(rows(&system, "events").await, 2);
        let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = 'events_key'::regclass AND indisvalid";
        assert_eq!(system.count(valid).await, 1);
        assert_eq!(system.count("SELECT count(*) FROM pg_constraint WHERE conname = 'events_pkey'").await, 0);
    })
    .await;
}
