//! A ledger as months of work leave it, written straight into its tables, day by day.

mod days;
mod rows;

use std::{ops::Range, time::Instant};

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use self::rows::{Kind, Rows};
use super::{
    PARTS,
    size::{DROPPED, HELD, HISTORY, OLD_DAY, OTHER_WEBHOOKS, RETRIES, Size, WAITING},
};
use crate::environment::Environment;

pub(super) const MILLIS_A_DAY: i64 = 24 * 60 * 60 * 1000;
/// The days of the history, and those of waiting deliveries.
const HISTORY_DAYS: i64 = 30;
const WAITING_DAYS: i64 = 5;
/// The least age of a row, in milliseconds: it must not look like work under way.
const MIN_AGE_MILLIS: i64 = 10 * 60 * 1000;
/// Days that are past the retention once it is shortened, as numbers of days ago.
pub(super) const WAITING_DAY: i64 = 36;
pub(super) const GOING_DAY: i64 = 33;
/// As many webhooks as a tenant may have by default.
const OF_TENANT: u64 = 100;
const FEW_DELIVERIES: u64 = 1_000;

pub(super) struct Seeded {
    /// The day of the seeding. Other days count back from it, also after midnight.
    pub(super) today: Date,
    /// The tenant of the large webhooks. It has some more.
    pub(super) large: Uuid,
    /// 10,000,000 deliveries over 30 days, nearly all of them successes. Active.
    pub(super) history: Uuid,
    /// 2,000,000 waiting deliveries, half of them held, and 100,000 dropped ones. Paused.
    pub(super) waiting: Uuid,
    /// 1,000,000 held jobs. Paused.
    pub(super) paused: Uuid,
    /// 1,000,000 retries that are due in hours, and 100,000 dropped ones. Active.
    pub(super) retrying: Uuid,
    /// 1,000 deliveries.
    pub(super) small: Uuid,
    /// A tenant with one webhook that gets events all the time.
    pub(super) other: Uuid,
    /// A tenant with as many webhooks as it may have.
    pub(super) full: Uuid,
}

/// Writes what the parts need. The long history and the small webhook are always written.
pub(super) async fn fill(environment: &Environment<'_>, size: Size, parts: &[&str]) -> Seeded {
    let seeded = register(environment, size).await;
    days::make(environment).await;
    let now = OffsetDateTime::now_utc().unix_timestamp() * 1000;
    let midnight = seeded.today.midnight().assume_utc().unix_timestamp() * 1000;
    let past = |days: i64| midnight - days * MILLIS_A_DAY;
    let (months, lately) = (past(HISTORY_DAYS - 1)..now - MIN_AGE_MILLIS, past(WAITING_DAYS)..now - MIN_AGE_MILLIS);
    let day = |ago: i64| past(ago)..past(ago - 1);
    let rows = |webhook, kind, full, span: &Range<i64>| Rows {
        tenant: seeded.large,
        webhook,
        kind,
        count: size.of(full),
        span: span.clone(),
    };
    let plan: [(&[&str], Rows); 9] = [
        (&PARTS, rows(seeded.history, Kind::Past, HISTORY, &months)),
        (&PARTS, rows(seeded.small, Kind::Past, FEW_DELIVERIES, &lately)),
        (&["calls", "deletion"], rows(seeded.waiting, Kind::Waiting, WAITING, &lately)),
        (&["calls", "deletion"], rows(seeded.waiting, Kind::Dropped, DROPPED, &lately)),
        (&["activation"], rows(seeded.paused, Kind::Held, HELD, &lately)),
        (&["rebuild"], rows(seeded.retrying, Kind::Retrying, RETRIES, &lately)),
        (&["recovery"], rows(seeded.retrying, Kind::Dropped, DROPPED, &lately)),
        (&["retention"], rows(seeded.history, Kind::PastButSome, OLD_DAY, &day(WAITING_DAY))),
        (&["retention"], rows(seeded.history, Kind::Past, OLD_DAY, &day(GOING_DAY))),
    ];
    environment.sql("SET statement_timeout = '10min'; SET work_mem = '256MB'; SET synchronous_commit = off").await;
    let began = Instant::now();
    for (needed_by, rows) in plan {
        if needed_by.iter().any(|part| parts.contains(part)) {
            rows.write(environment, began).await;
        }
    }
    insight(environment, &seeded).await;
    environment.sql("SET statement_timeout = '20min'; RESET work_mem; RESET synchronous_commit").await;
    settle(environment).await;
    seeded
}

/// Three months of statistics with many outcomes and durations in each hour, and long lists of notices and history.
async fn insight(environment: &Environment<'_>, seeded: &Seeded) {
    let (webhook, tenant) = (seeded.history, seeded.large);
    let statements = [
        format!(
            "INSERT INTO webhook_stats SELECT '{webhook}', date_trunc('hour', now(), 'UTC') - hour * interval '1 hour', \
             outcome, bucket, 100, 0 FROM generate_series(0, 90 * 24) AS hour, \
             unnest('{{success,status,timeout}}'::text[]) AS outcome, generate_series(3, 10) AS bucket"
        ),
        format!(
            "INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details, leased_until) \
             SELECT '{webhook}', '{tenant}', 'Large', 'webhook.paused', '{{\"user\": \"somebody\"}}', null \
             FROM generate_series(1, 100000)"
        ),
        format!(
            "INSERT INTO history (webhook_id, tenant_id, user_id, action, details) \
             SELECT '{webhook}', '{tenant}', 'somebody', 'changed', '{{\"is_active\": {{\"from\": true, \"to\": false}}}}' \
             FROM generate_series(1, 100000)"
        ),
    ];
    for statement in statements {
        environment.sql(&statement).await;
    }
}

async fn register(environment: &Environment<'_>, size: Size) -> Seeded {
    let large = environment.webhooks(1, 50, "/ok/large").await[0];
    let other = environment.webhooks(1, 1, "/ok/ok").await[0];
    let tenants = usize::try_from(size.of(OTHER_WEBHOOKS).div_ceil(OF_TENANT)).expect("a small number");
    let others = environment.webhooks(tenants, usize::try_from(OF_TENANT).expect("a small number"), "/ok/large").await;
    let ids = environment.rows(&format!("SELECT id::text FROM webhooks WHERE tenant_id = '{large}' ORDER BY id")).await;
    let id = |nth: usize| -> Uuid { ids[nth].get::<_, &str>(0).parse().expect("it is an id") };
    let all = domain::EventType::ALL.map(domain::EventType::as_str).join(",");
    environment.sql(&format!("UPDATE webhooks SET events = '{{{all}}}' WHERE tenant_id = '{large}'")).await;
    let (history, waiting, paused, retrying, small) = (id(0), id(1), id(2), id(3), id(4));
    environment.sql(&format!("UPDATE webhooks SET is_active = false WHERE id IN ('{waiting}', '{paused}')")).await;
    let today = OffsetDateTime::now_utc().date();
    Seeded { today, large, history, waiting, paused, retrying, small, other, full: others[0] }
}

/// Does what the server would do by itself in the first hour, so that no measurement pays for it.
async fn settle(environment: &Environment<'_>) {
    println!("  vacuum and checkpoint …");
    let tables = environment
        .rows(
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition \
             AND relnamespace = 'public'::regnamespace AND relname NOT IN ('events', 'attempts')",
        )
        .await;
    for table in &tables {
        environment.sql(&format!("VACUUM (ANALYZE) {}", table.get::<_, &str>(0))).await;
    }
    environment.sql("CHECKPOINT").await;
    environment.sql("RESET statement_timeout").await;
}
