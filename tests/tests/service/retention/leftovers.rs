//! Rows of the tables beside the log of deliveries.

use std::collections::BTreeSet;

use end_to_end::{
    system::{Service, System, TestSystem},
    wait::SOON,
};
use uuid::Uuid;

use crate::retention::{DAY, Subscribed, clear, leader, options, rows, today};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_has_a_retention() {
    let system = TestSystem::prepared(options()).await;
    let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition \
                      AND relnamespace = 'public'::regnamespace";
    let present = async || system.sql(tables).await.iter().map(|row| row.get(0)).collect::<BTreeSet<String>>();
    let retained: BTreeSet<String> = ledger::retained_tables().map(str::to_owned).collect();
    assert_eq!(present().await, retained, "a table is missing in ledger/src/leader/leftovers.rs, or one is gone");
    system.sql("CREATE TABLE added (id uuid)").await;
    assert!(present().await.contains("added"), "it would be noticed");
}

/// Adds rows of unsuccessful deliveries that are gone. Those of a day that is not kept go.
async fn add_unsuccessful(system: &System, webhook: &str) {
    let rows = [
        format!("'00000000-0001-8000-8000-000000000001', '{webhook}', 'dropped'"),
        "'00000000-0001-8000-8000-000000000002', gen_random_uuid(), 'retrying'".to_owned(),
        format!("'ffffffff-0001-8000-8000-000000000004', '{webhook}', 'dropped'"),
    ];
    let columns = "delivery_id, webhook_id, state";
    system.sql(&format!("INSERT INTO unsuccessful_deliveries ({columns}) VALUES ({})", rows.join("), ("))).await;
}

/// Adds keys: one that expired long ago, one that expired, and one that never does.
async fn add_keys(system: &System) {
    let expiries = ["now() - interval '91 days'", "now() - interval '89 days'", "NULL"];
    let rows = expiries.map(|expiry| format!("gen_random_uuid(), 'n', sha256('{}'), {expiry}", Uuid::new_v4()));
    let columns = "tenant_id, name, key_sha256, expires_at";
    system.sql(&format!("INSERT INTO api_keys ({columns}) VALUES ({})", rows.join("), ("))).await;
}

/// Fills these tables with rows that are to go and rows that are needed.
async fn fill(system: &System, webhook: &str) {
    let waiting = format!("(SELECT id FROM deliveries WHERE webhook_id = '{webhook}' AND state = 'pending' LIMIT 1)");
    let ended = format!("(SELECT id FROM deliveries WHERE webhook_id = '{webhook}' AND state = 'dropped' LIMIT 1)");
    let gone = "gen_random_uuid()";
    for (into, values) in [
        (
            "held_jobs",
            vec![format!("'{webhook}', {waiting}"), format!("'{webhook}', {ended}"), format!("'{webhook}', {gone}")],
        ),
        (
            "promised_jobs (delivery_id, leased_until)",
            vec![format!("{waiting}, now() - interval '2 days'"), format!("{gone}, now() - interval '2 days'")],
        ),
        (
            "suspect_jobs (delivery_id, tries, marked_at, dead_reason)",
            vec![
                // This job is parked among the dead ones, and its delivery waits for it.
                format!("{waiting}, 0, now() - interval '40 days', 'poison'"),
                format!("{gone}, 0, now() - interval '40 days', 'poison'"),
                format!("{gone}, 0, now(), 'unknown_delivery'"),
                format!("{gone}, 2, now() - interval '1 hour', NULL"),
            ],
        ),
        (
            "requeued_jobs (delivery_id, attempt, requeued_at)",
            vec![format!("{waiting}, 1, now() - interval '2 days'"), format!("{ended}, 1, now() - interval '4 days'")],
        ),
        (
            "recoveries (id, webhook_id, since, cursor, finished_at)",
            vec![
                format!("{gone}, '{webhook}', now(), {gone}, NULL"),
                format!("{gone}, '{webhook}', now(), {gone}, now() - interval '29 days'"),
                format!("{gone}, {gone}, now(), {gone}, NULL"),
            ],
        ),
        (
            "held_webhooks",
            vec![
                format!("'{webhook}', 1, now(), now() + interval '1 hour'"),
                format!("{gone}, 1, now(), now() + interval '1 hour'"),
            ],
        ),
        ("webhook_health", vec![format!("'{webhook}', now(), 0"), format!("{gone}, now(), 0")]),
        (
            "notices (webhook_id, tenant_id, webhook_name, notice_type, details, created_at, leased_until)",
            // The second one is not published yet.
            [("91 days", "NULL"), ("91 days", "now()"), ("89 days", "NULL")]
                .map(|(age, leased)| {
                    format!(
                        "'{webhook}', {gone}, 'A test', 'webhook.paused', '{{}}', now() - interval '{age}', {leased}"
                    )
                })
                .to_vec(),
        ),
    ] {
        let values = values.join("), (");
        system.sql(&format!("INSERT INTO {into} VALUES ({values})")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_every_table_what_nothing_needs_goes_and_what_is_needed_stays() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    subscribed.past(&system, 1, "pending", "now()", "now()").await;
    subscribed.past(&system, 1, "dropped", "now() + interval '1 second'", "now()").await;
    let mut leader = leader(&system).await;
    // A day that is too old, but is still there.
    let old = today() - DAY * 40;
    leader.partitions_ensure(old.date()).await.unwrap();
    subscribed.past(&system, 1, "cancelled", "now() - interval '40 days'", "now()").await;
    // The API's outbox relay would publish what is in the outbox.
    system.stop(Service::Api).await;
    fill(&system, &subscribed.webhook).await;
    add_unsuccessful(&system, &subscribed.webhook).await;
    add_keys(&system).await;
    // A mark that a dispatcher left behind. Its delivery still exists.
    let mark =
        "INSERT INTO suspect_jobs SELECT id, 1, now() - interval '2 days' FROM deliveries WHERE state = 'dropped'";
    system.sql(mark).await;
    assert_eq!(clear(&mut leader).await.iter().sum::<u32>(), 12);
    for (table, left) in [
        // With that of the registration.
        ("notices", 3),
        ("held_jobs", 2),
        ("promised_jobs", 1),
        ("suspect_jobs", 3),
        ("requeued_jobs", 1),
        ("recoveries", 2),
        ("unsuccessful_deliveries", 3),
        ("held_webhooks", 1),
        ("webhook_health", 1),
        ("api_keys", 2),
    ] {
        assert_eq!(rows(&system, table).await, left, "{table}");
    }
    let parked = "SELECT count(*) FROM suspect_jobs JOIN deliveries ON id = delivery_id WHERE dead_reason = 'poison'";
    assert_eq!(system.count(parked).await, 1, "the job of a delivery that waits stays parked");
    assert_eq!(clear(&mut leader).await.iter().sum::<u32>(), 0);

    // The leader does so by itself.
    drop(leader);
    system.sql("INSERT INTO held_jobs SELECT webhook_id, gen_random_uuid() FROM held_jobs LIMIT 1").await;
    for days in [1, 91] {
        let row = format!("gen_random_uuid(), now() - interval '{days} days', 'success', 1, 1, 0");
        system.sql(&format!("INSERT INTO webhook_stats VALUES ({row})")).await;
    }
    system.start(Service::Ingest).await;
    for (table, left) in [("held_jobs", 2), ("webhook_stats", 1)] {
        system.until_count(&format!("SELECT count(*) FROM {table}"), left, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_walked_in_bounded_steps_beyond_what_stays() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let webhook = &subscribed.webhook;
    subscribed.past(&system, 6_000, "dropped", "now()", "now()").await;
    system.sql("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries").await;
    // Their ids come after those of all rows that stay.
    let last = "('ffffffff' || substr(gen_random_uuid()::text, 9))::uuid";
    system.sql(&format!("INSERT INTO held_jobs SELECT '{webhook}', {last} FROM generate_series(1, 6000)")).await;
    let gone = clear(&mut leader(&system).await).await;
    assert_eq!((rows(&system, "held_jobs").await, gone.iter().sum::<u32>()), (6_000, 6_000));
    assert!(gone.iter().all(|gone| *gone <= 5_000), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_a_deleted_webhook_is_kept_for_90_days_however_long_it_is() {
    let system = TestSystem::prepared(options()).await;
    let [kept, old] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let add = async |webhook, action: &str, days: u32, count: u32| {
        let columns = "tenant_id, webhook_id, user_id, action, details, created_at";
        let row =
            format!("gen_random_uuid(), '{webhook}', 'somebody', '{action}', '{{}}', now() - interval '{days} days'");
        system.sql(&format!("INSERT INTO history ({columns}) SELECT {row} FROM generate_series(1, {count})")).await;
    };
    add(kept, "resent", 100, 30_000).await;
    add(kept, "deleted", 89, 1).await;
    add(old, "created", 100, 1).await;
    add(old, "deleted", 91, 1).await;
    // As if the table were so large that nothing is worth reading all of it.
    for plan in ["seqscan", "hashjoin", "mergejoin", "material", "memoize"] {
        let alter = format!("format('ALTER DATABASE %I SET enable_{plan} = off', current_database())");
        system.sql(&format!("DO $$ BEGIN EXECUTE {alter}; END $$")).await;
    }
    let gone = clear(&mut leader(&system).await).await;
    assert_eq!((gone.iter().sum::<u32>(), rows(&system, "history").await), (2, 30_001));
}

/// As with a log that is kept for more than 90 days.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_a_deleted_webhook_is_kept_with_its_log() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let Subscribed { tenant, webhook, .. } = &subscribed;
    subscribed.past(&system, 1, "succeeded", "now()", "now()").await;
    let api = system.admin(*tenant).await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    system.sql("UPDATE history SET created_at = now() - interval '100 days'").await;
    system.sql("UPDATE webhooks SET deleted_at = now() - interval '100 days'").await;
    let mut leader = leader(&system).await;
    clear(&mut leader).await;
    assert_eq!(rows(&system, "history").await, 2);
    let page = api.get(&format!("/console/webhooks/{webhook}/")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    system.sql("DELETE FROM deliveries").await;
    // First the webhook, then, when it is gone, its history.
    clear(&mut leader).await;
    assert_eq!((rows(&system, "webhooks").await, rows(&system, "history").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_living_webhook_the_newest_1000_entries_of_the_history_are_kept_and_those_of_90_days() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let add = async |days: u32, count: u32| {
        let columns = "tenant_id, webhook_id, user_id, action, details, created_at";
        let Subscribed { tenant, webhook, .. } = &subscribed;
        let row = format!("'{tenant}', '{webhook}', 'somebody', 'resent', '{{}}', now() - interval '{days} days'");
        system.sql(&format!("INSERT INTO history ({columns}) SELECT {row} FROM generate_series(1, {count})")).await;
    };
    system.sql("DELETE FROM history").await;
    let mut leader = leader(&system).await;
    add(100, 1_005).await;
    assert_eq!((clear(&mut leader).await.iter().sum::<u32>(), rows(&system, "history").await), (5, 1_000));
    add(80, 1_200).await;
    let gone = clear(&mut leader).await;
    assert_eq!((gone.iter().sum::<u32>(), rows(&system, "history").await), (1_000, 1_200), "these are young");
}
