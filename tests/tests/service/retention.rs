//! Old days go, without holding anybody up.
mod bodies;
mod cursor;
mod days;
mod expiring;
mod leftovers;
mod log;
mod resend;

use std::time::Duration;

use domain::{DeliveryId, EventType};
use end_to_end::{
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually},
};
use ledger::{Day, Leader, Ledger, Part, Removal};
use time::OffsetDateTime;
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn ledger(system: &System) -> Ledger {
    system.ledger_as("retention", 2)
}

async fn leader(system: &System) -> Leader {
    let ledger = ledger(system);
    // An ingest that has just stopped leads until the database has ended its session.
    eventually("nobody else leads", SOON, || async { ledger.candidate().await.unwrap().lead().await.unwrap().ok() })
        .await
}

/// Walks the tables beside the log once. Returns how many rows each step deleted.
async fn clear(leader: &mut Leader) -> Vec<u32> {
    let mut gone = Vec::new();
    loop {
        let cleared = leader.leftovers_clear(today() - KEEP).await.unwrap();
        gone.push(cleared.gone);
        if cleared.is_last {
            return gone;
        }
    }
}

/// Moves the cursor of untried deliveries past everything that is older than a day, as the leader does.
async fn index(leader: &mut Leader) {
    let (mut cursor, end) = (Uuid::nil(), DeliveryId::bound_at(today() - DAY));
    while cursor < end {
        cursor = leader.untried_index(cursor, end).await.unwrap().unwrap().indexed_before;
    }
}

/// The result of the removal of a part of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    steps: usize,
    looked: u32,
    cancelled: u32,
    is_dropped: bool,
}

/// Removes a part of a day.
async fn remove(leader: &mut Leader, day: impl Into<Day>, part: Part) -> Outcome {
    index(leader).await;
    let (mut rest, mut outcome) = (Some(Removal::of(day.into(), part)), Outcome::default());
    while let Some(removal) = rest {
        let done = leader.removal_step(&removal).await.unwrap();
        assert!(done.looked <= Removal::ROWS, "{done:?}");
        outcome.steps += 1;
        outcome.looked += done.looked;
        outcome.cancelled += done.cancelled;
        outcome.is_dropped |= done.is_dropped;
        rest = done.rest;
    }
    outcome
}

/// Removes a day in which nothing waits.
async fn drop_day(leader: &mut Leader, day: impl Into<Day>) {
    let dropped = remove(leader, day, Part::Log).await;
    assert!(dropped.is_dropped && dropped.cancelled == 0, "{dropped:?}");
}

/// A webhook and its receiver, which answers 200.
struct Subscribed {
    tenant: Uuid,
    webhook: String,
    _receiver: Receiver,
}

impl Subscribed {
    /// With a system in which an api-service runs.
    async fn prepared(options: Options) -> (TestSystem, Self) {
        let system = TestSystem::prepared(options).await;
        let subscribed = Self::new(&system).await;
        (system, subscribed)
    }

    async fn new(system: &System) -> Self {
        let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
        system.start(Service::Api).await;
        let created = system.admin(tenant).await.create(&receiver.url("/"), &[EventType::QuoteClosed.as_str()]).await;
        Self { tenant, webhook: created.id, _receiver: receiver }
    }

    /// Inserts deliveries with one attempt each. Their events fired at `at`, a millisecond apart, and were received at
    /// `came`. Both are SQL expressions.
    async fn past(&self, system: &System, count: usize, state: &str, at: &str, came: &str) {
        let Self { tenant, webhook, .. } = self;
        system
            .sql(&format!(
                "WITH past AS MATERIALIZED ( \
                    SELECT i, gen_random_uuid() AS event, \
                           date_trunc('milliseconds', {at}) + i * interval '1 millisecond' AS at \
                    FROM generate_series(1, {count}) AS i \
                 ), named AS MATERIALIZED ( \
                    SELECT *, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || \
                              '8' || substr(md5(event::text), 1, 3) || '8' || substr(md5(event::text), 4, 15))::uuid AS id \
                    FROM past \
                 ), event AS ( \
                    INSERT INTO events (occurred_at, id, tenant_id, event_type, body, received_at) \
                    SELECT at, event, '{tenant}', 'quote.closed', '{{}}', {came} FROM past \
                 ), attempt AS ( \
                    INSERT INTO attempts (delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, response_body) \
                    SELECT id, 1, 'https://localhost/', at, at, 1000, 'success', '' FROM named \
                 ) INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at) \
                   SELECT id, '{webhook}', event, 'quote.closed', '{state}', 1, {came} FROM named"
            ))
            .await;
    }
}

async fn rows(system: &System, table: &str) -> i64 {
    system.count(&format!("SELECT count(*) FROM {table}")).await
}

async fn partitions(system: &System, day: time::Date) -> i64 {
    let suffix = day.to_string().replace('-', "");
    system.count(&format!("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_{suffix}'")).await
}

fn today() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn options() -> Options {
    let settings = [("RECONCILE__INTERVAL", "100ms".to_owned()), ("RETENTION__KEEP", "30days".to_owned())];
    Options { settings: settings.to_vec(), ..Options::default() }
}
