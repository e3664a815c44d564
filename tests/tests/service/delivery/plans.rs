//! The cost of a batch does not depend on what the ledger held when its statements were planned.

use std::time::Duration;

use domain::{DeliveryId, DeliveryState, EventType, OutcomeClass, PostResult, Progress};
use end_to_end::{
    api::Created,
    database::Session,
    history::made,
    system::{Options, Service, System, TestSystem},
    wait::{SOON, until},
};
use ledger::{Attempted, DeliveryFilter, Ledger, LoadedDelivery, NewEvent, NewRecovery, Page, Record, Recoverable};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::delivery::twice::new_event;

const DELIVERIES: usize = 5_000;
const BATCH: u32 = 10;

fn succeeded(delivery: LoadedDelivery) -> Attempted {
    Attempted {
        id: delivery.id,
        webhook: delivery.destination.webhook,
        progress: Progress {
            state: DeliveryState::Succeeded,
            attempts: delivery.progress.attempts + 1,
            ..delivery.progress
        },
        url: delivery.destination.url,
        signed_at: OffsetDateTime::UNIX_EPOCH,
        answer: PostResult {
            class: OutcomeClass::Success,
            status: Some(200),
            head: Vec::new(),
            error: None,
            started_at: OffsetDateTime::now_utc(),
            elapsed: Duration::from_millis(1),
        },
        traceparent: delivery.traceparent,
    }
}

/// How many rows were read so far, by table and by index scans, in all tables of the hot path.
async fn read(system: &System) -> i64 {
    let all = "SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint \
               FROM pg_stat_user_tables WHERE relname ~ '^(webhooks|webhook_health|events|deliveries|attempts|unsuccessful)'";
    system.count(all).await
}

/// How many pages of the indexes of deliveries were read so far. An index is read even where no row of it is fetched.
async fn index_pages(system: &System) -> i64 {
    let all = "SELECT coalesce(sum(idx_blks_read + idx_blks_hit), 0)::bigint FROM pg_statio_user_indexes \
               WHERE relname ~ '^(deliveries|unsuccessful)'";
    system.count(all).await
}

/// A new tenant with one webhook. No service runs: an api-service reads too.
async fn registered(system: &System) -> (Uuid, Created) {
    system.start(Service::Api).await;
    let tenant = Uuid::new_v4();
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await;
    system.stop(Service::Api).await;
    (tenant, webhook)
}

/// What a call reads on a connection of its own: rows, and pages of indexes.
pub(super) async fn reads(system: &System, call: impl AsyncFnOnce(&Ledger)) -> (i64, i64) {
    // What was read and written to prepare the test is counted now, not in the middle.
    system.sql("SELECT pg_stat_force_next_flush()").await;
    let before = (read(system).await, index_pages(system).await);
    let name: &'static str = Box::leak(format!("reads-{}", Uuid::new_v4().simple()).into_boxed_str());
    let ledger = system.ledger_as(name, 1);
    call(&ledger).await;
    drop(ledger);
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    system.until_count(&gone, 0, SOON).await;
    (read(system).await - before.0, index_pages(system).await - before.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_planned_while_the_ledger_was_empty_reads_its_own_rows_only() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, webhook) = registered(&system).await;
    let ledger = system.ledger_as("plans", 1);
    let event = || [new_event(tenant)];
    system.sql("ANALYZE webhooks").await;
    // These statements are planned here, once for this connection.
    ledger.deliveries_load(&[DeliveryId::from(Uuid::now_v7())]).await.unwrap();
    ledger.events_store(&event()).await.unwrap();
    made(&system, tenant, &webhook.id, 1, "'pending'").await;
    let one = ids(&system, 1).await;
    ledger.attempts_record(&[succeeded(load(&ledger, &one).await.remove(0))]).await.unwrap();

    made(&system, tenant, &webhook.id, DELIVERIES, "'pending'").await;
    let others = "INSERT INTO webhooks (id, tenant_id, name, url, events, secret_key_id, secret_sealed) \
                  SELECT gen_random_uuid(), gen_random_uuid(), name, url, events, secret_key_id, secret_sealed \
                  FROM webhooks CROSS JOIN generate_series(1, 5000)";
    // The server counts what a statement has read when its session is told to, or later.
    let session = Session::open(&system.database_url).await;
    session.rows(others).await;
    session.rows("SELECT pg_stat_force_next_flush()").await;
    let ids = ids(&system, BATCH).await;
    // What was read to prepare the test is counted now, not in the middle.
    system.sql("SELECT pg_stat_force_next_flush()").await;
    let before = read(&system).await;
    assert_eq!(ledger.events_store(&event()).await.unwrap().deliveries.len(), 1);
    let batch: Vec<_> = load(&ledger, &ids).await.into_iter().map(succeeded).collect();
    assert_eq!(ledger.attempts_record(&batch).await.unwrap().len(), ids.len());
    drop(ledger);
    let gone =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plans' AND datname = current_database()";
    system.until_count(gone, 0, SOON).await;
    let read = read(&system).await - before;
    println!("{read} rows were read for a batch of {BATCH} among {DELIVERIES}");
    assert!(read >= 3 * i64::from(BATCH), "{read} rows were read: deliveries, webhooks and events at least");
    assert!(read < i64::try_from(DELIVERIES).unwrap() / 10, "{read} rows were read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_changes_every_row_of_a_page_leaves_them_in_their_pages() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, webhook) = registered(&system).await;
    let ledger = system.ledger_as("plans", 1);
    made(&system, tenant, &webhook.id, 512, "'pending'").await;
    let ids = ids(&system, 512).await;
    let batch: Vec<_> = load(&ledger, &ids).await.into_iter().map(succeeded).collect();
    assert_eq!(ledger.attempts_record(&batch).await.unwrap().len(), ids.len());
    drop(ledger);
    let updated = async |column: &str| {
        let sum = "SELECT coalesce(sum({}), 0)::bigint FROM pg_stat_user_tables WHERE relname ~ '^deliveries'";
        system.count(&sum.replace("{}", column)).await
    };
    until("the updates are counted", SOON, || async { updated("n_tup_upd").await == 512 }).await;
    let in_place = updated("n_tup_hot_upd").await;
    assert!(in_place > 450, "{in_place} of 512 rows stayed in their pages: the others have new entries in every index");
}

/// However many days are kept, the statements of the pipeline cost the same. Each partition of a plan is locked at
/// each execution, so a statement whose plan had those of other days would wait for the session that has locked them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pipeline_neither_plans_nor_locks_the_partitions_of_other_days() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, webhook) = registered(&system).await;
    let Ok(mut leader) = system.ledger_as("days", 1).candidate().await.unwrap().lead().await.unwrap() else {
        panic!("another leads")
    };
    let today = OffsetDateTime::now_utc().date();
    for past in (0..40).step_by(9) {
        leader.partitions_ensure(today - time::Duration::days(past)).await.unwrap();
    }
    drop(leader);
    made(&system, tenant, &webhook.id, 5, "'pending'").await;
    let ids = ids(&system, 5).await;
    system.sql("INSERT INTO promised_jobs SELECT id, now() FROM deliveries").await;
    let others = "SELECT string_agg(inhrelid::regclass::text, ', '), count(*) FROM pg_inherits JOIN pg_class ON oid = inhrelid \
                  WHERE inhparent IN ('events'::regclass, 'deliveries'::regclass, 'attempts'::regclass) \
                      AND right(relname, 8) < to_char(now() AT TIME ZONE 'UTC' - interval '8 days', 'YYYYMMDD')";
    let others = system.sql(others).await;
    assert!(others[0].get::<_, i64>(1) >= 3 * 20, "{} partitions", others[0].get::<_, i64>(1));
    let session = Session::open(&system.database_url).await;
    session.rows("BEGIN").await;
    session.rows(&format!("LOCK TABLE ONLY {}", others[0].get::<_, &str>(0).replace(", ", ", ONLY "))).await;
    // One connection, new to each of these statements.
    let ledger = system.ledger_as("pipeline", 1);
    let event = NewEvent { timestamp: OffsetDateTime::now_utc().try_into().unwrap(), ..new_event(tenant) };
    assert_eq!(ledger.events_store(std::slice::from_ref(&event)).await.unwrap().deliveries.len(), 1);
    assert_eq!(ledger.deliveries_untried(&[&event]).await.unwrap().len(), 1, "of a redelivered event");
    assert_eq!(ledger.outbox_lease(200).await.unwrap().jobs().len(), ids.len());
    assert!(ledger.outbox_lease(200).await.unwrap().is_empty(), "the others are leased");
    assert!(ledger.body_load(ids[0]).await.unwrap().is_some());
    let batch: Vec<_> = load(&ledger, &ids).await.into_iter().map(succeeded).collect();
    assert_eq!(ledger.attempts_record(&batch).await.unwrap().len(), ids.len());
    let again = ledger.attempts_record(&batch).await.unwrap();
    assert!(again.iter().all(|record| matches!(record, Record::Taken { .. })), "{again:?}");
    assert!(!ledger.delivery_postpone(ids[0], 0, OffsetDateTime::now_utc()).await.unwrap());
    ledger.deliveries_cancel(&ids).await.unwrap();
}

async fn load(ledger: &Ledger, ids: &[DeliveryId]) -> Vec<LoadedDelivery> {
    let loaded: Option<Vec<_>> = ledger.deliveries_load(ids).await.unwrap().into_iter().collect();
    loaded.unwrap()
}

/// The ids of the latest deliveries.
async fn ids(system: &System, count: u32) -> Vec<DeliveryId> {
    let some = format!("SELECT id::text FROM deliveries ORDER BY id DESC LIMIT {count}");
    system.sql(&some).await.iter().map(|row| row.get::<_, &str>(0).parse::<Uuid>().unwrap().into()).collect()
}

/// A day of 25,000 deliveries in the order of their ids. `webhook` is an SQL expression of the row's number `i`.
async fn filled(system: &System, days_ago: u8, webhook: &str) {
    let fill = format!(
        "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts) \
         SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(i::text), 1, 3) || \
                 '8' || substr(md5(i::text), 4, 15))::uuid, {webhook}, gen_random_uuid(), 'quote.closed', \
                CASE i % 4 WHEN 0 THEN 'dropped' ELSE 'succeeded' END, 1 \
         FROM (SELECT i, date_trunc('day', now(), 'UTC') + i * interval '3 seconds' - interval '{days_ago} days' AS at \
               FROM generate_series(1, 25000) AS i) AS past ORDER BY i"
    );
    system.sql(&fill).await;
}

/// Reads the first page of a webhook's log, in one step.
pub(super) async fn first_page(ledger: &Ledger, tenant: Uuid, webhook: &str, filter: &DeliveryFilter) {
    let id = webhook.parse::<Uuid>().unwrap().into();
    let own = ledger.webhook_known(tenant.into(), id).await.unwrap().unwrap();
    let page = Page { after: None, limit: 50 };
    ledger.delivery_list((tenant.into(), &[own]), filter, page, Duration::ZERO).await.unwrap();
}

/// The index of webhooks finds a webhook's log, whatever else the ledger holds and whatever the planner believes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_log_reads_its_own_rows_only_beside_few_webhooks_or_a_large_one() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    let quiet = &api.create("https://localhost/", &["quote.closed"]).await.id;
    let large = &api.create("https://localhost/", &["quote.closed"]).await.id;
    let small = &api.create("https://localhost/", &["quote.closed"]).await.id;
    made(&system, tenant, small, 3, "'dropped'").await;
    // Yesterday: ten webhooks with equal shares. The day before: one with four fifths, 200 with the rest.
    let of_ten = "md5((i % 10)::text)::uuid".to_owned();
    let of_many = format!("CASE WHEN i % 5 = 0 THEN md5((i % 1000)::text)::uuid ELSE '{large}' END");
    for (days, webhook) in [(1, of_ten), (2, of_many)] {
        filled(&system, days, &webhook).await;
    }
    system.sql("ANALYZE deliveries").await;
    system.sql("ANALYZE unsuccessful_deliveries").await;
    let accepted = DeliveryFilter { event_type: Some(EventType::QuoteAccepted), ..DeliveryFilter::default() };
    let dropped = DeliveryFilter { states: vec![DeliveryState::Dropped], ..DeliveryFilter::default() };
    for (webhook, filter, most) in [
        (quiet, &DeliveryFilter::default(), 50),
        (small, &DeliveryFilter::default(), 50),
        (large, &DeliveryFilter::default(), 500),
        (large, &accepted, 5_000),
        (large, &dropped, 500),
        (quiet, &dropped, 50),
    ] {
        let (read, pages) = reads(&system, async |ledger| first_page(ledger, tenant, webhook, filter).await).await;
        println!("{read} rows and {pages} pages of indexes were read for {filter:?} of {webhook}");
        assert!(read <= most, "{read} rows were read for {filter:?} of {webhook}");
        assert!(pages <= 200, "{pages} pages of indexes were read for {filter:?} of {webhook}");
    }
}

/// In an outage, nearly all unsuccessful deliveries are of a few webhooks. The others are looked at as fast as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_few_failing_webhooks_have_in_great_numbers_is_not_read_for_others() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    let quiet = &api.create("https://localhost/", &["quote.closed"]).await.id;
    let failing = &api.create("https://localhost/", &["quote.closed"]).await.id;
    made(&system, tenant, failing, 3, "'dropped'").await;
    let retrying = format!(
        "INSERT INTO unsuccessful_deliveries (delivery_id, webhook_id, state, next_attempt_at) \
         SELECT (lpad(to_hex(1767225600000 + i), 12, '0') || '8000' || '8000' || lpad(to_hex(i), 12, '0'))::uuid, \
                CASE i % 3 WHEN 0 THEN '{failing}'::uuid ELSE md5((i % 3)::text)::uuid END, 'retrying', now() \
         FROM generate_series(1, 150000) AS i"
    );
    system.sql(&retrying).await;
    for table in ["unsuccessful_deliveries", "deliveries"] {
        system.sql(&format!("VACUUM ANALYZE {table}")).await;
    }
    let look_up = async |id: &str| {
        let id = id.parse::<Uuid>().unwrap().into();
        reads(&system, async |ledger| {
            ledger.webhook_find(tenant.into(), id).await.unwrap().unwrap();
        })
        .await
    };
    let count = async |id: &str| {
        let (id, day) = (id.parse::<Uuid>().unwrap().into(), Duration::from_secs(86_400));
        let since = OffsetDateTime::now_utc() - day;
        let states = vec![Recoverable::Dropped];
        let wanted = NewRecovery { since, until: None, states, outcomes: Vec::new(), event_types: Vec::new() };
        reads(&system, async |ledger| {
            ledger.recoverable_count(tenant.into(), id, &wanted, day).await.unwrap().unwrap();
        })
        .await
    };
    let log = async |id: &str, state: DeliveryState| {
        let filter = DeliveryFilter { states: vec![state], ..DeliveryFilter::default() };
        reads(&system, async |ledger| first_page(ledger, tenant, id, &filter).await).await
    };
    for (what, (rows, pages)) in [
        ("one that does not fail", look_up(quiet).await),
        ("its recoverable ones", count(quiet).await),
        ("its retrying ones", log(quiet, DeliveryState::Retrying).await),
        ("its dropped ones", log(quiet, DeliveryState::Dropped).await),
        ("a failing one's dropped ones", log(failing, DeliveryState::Dropped).await),
        ("a failing one's recoverable ones", count(failing).await),
    ] {
        println!("{rows} rows and {pages} pages of indexes were read for {what}");
        assert!(rows <= 50 && pages <= 100, "{rows} rows and {pages} pages of indexes were read for {what}");
    }
}
