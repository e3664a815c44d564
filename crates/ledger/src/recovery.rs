//! Recoveries: what a webhook dropped or skipped in a span of time is sent again (replay), in steps.

pub(crate) mod resends;
mod step;

use std::time::Duration;

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, PgValue},
    prelude::*,
    sql_types::Text,
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, EventType, OutcomeClass, TenantId, WebhookId, parse_name, time_text};
use serde_json::json;
use strum::{Display, EnumString, IntoStaticStr};
use time::OffsetDateTime;
use uuid::Uuid;

use self::resends::first_kept;
use crate::{
    connect::{clock, pool::Ledger},
    error::LedgerError,
    history::{Action, Actor, add_history},
    lists::{Page, load_page},
    refusal::Refusal,
    statement::{rows, sql},
    tables::{recoveries, webhooks},
    webhook::{OwnWebhook, cancellation::is_cancelling, lock, of},
};

/// A state from which deliveries can be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr, FromSqlRow)]
#[strum(serialize_all = "snake_case")]
pub enum Recoverable {
    /// Every attempt of the schedule failed.
    Dropped,
    /// The webhook was paused when the event came.
    Skipped,
}

impl Recoverable {
    /// Every such state.
    pub const ALL: [Self; 2] = [Self::Dropped, Self::Skipped];

    /// The name in the ledger and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromSql<Text, Pg> for Recoverable {
    fn from_sql(name: PgValue<'_>) -> deserialize::Result<Self> {
        parse_name(&name)
    }
}

/// What to recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecovery {
    /// Deliveries whose event fired at this time or later,
    pub since: OffsetDateTime,
    /// and before this time, if there is one,
    pub until: Option<OffsetDateTime>,
    /// which are in one of these states,
    pub states: Vec<Recoverable>,
    /// whose last attempt had one of these outcomes, or any outcome if there is none here,
    pub outcomes: Vec<OutcomeClass>,
    /// and whose event has one of these types, or any type if there is none here.
    pub event_types: Vec<EventType>,
}

/// A recovery and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = recoveries, check_for_backend(diesel::pg::Pg))]
pub struct Recovery {
    /// Its id.
    pub id: Uuid,
    /// It recovers deliveries whose event fired at this time or later.
    pub since: OffsetDateTime,
    /// It recovers deliveries whose event fired before this time, if there is one.
    pub until: Option<OffsetDateTime>,
    /// The states from which it recovers.
    pub states: Vec<Recoverable>,
    /// The outcomes of the last attempts of the deliveries that it recovers; none: of all.
    pub outcomes: Vec<OutcomeClass>,
    /// The event types of the deliveries that it recovers; none: of all.
    pub event_types: Vec<EventType>,
    /// The last delivery that it has looked at.
    pub cursor: Uuid,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was done, or stopped.
    pub finished_at: Option<OffsetDateTime>,
    /// True if a request ended it before it was done.
    pub is_stopped: bool,
    /// How many deliveries have begun a fresh run.
    pub resent: i32,
}

/// The result of a request to recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recover {
    /// This recovery has begun.
    Begun(Recovery),
    /// This recovery was running already, and no other one has begun.
    Running(Recovery),
}

/// How many deliveries a recovery would send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverableCount {
    /// Dropped ones.
    pub dropped: i64,
    /// Skipped ones.
    pub skipped: i64,
    /// Whether there are no more.
    pub is_exact: bool,
}

impl RecoverableCount {
    /// The number of all.
    pub const fn total(&self) -> i64 {
        self.dropped + self.skipped
    }
}

/// A webhook whose deliveries an operator may recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverableWebhook {
    /// Its id.
    pub id: WebhookId,
    /// Its tenant.
    pub tenant: TenantId,
    /// True if a recovery of it is running.
    pub is_recovering: bool,
}

rows! { RecoverableWebhook { id, tenant, is_recovering } }

/// The count of each state stops here: some tens of milliseconds, or a second or two for deliveries of certain outcomes.
const MAX_COUNT: i64 = 100_000;
/// The maximum of deliveries of each state of which a count looks up the event types: a tenth of a second.
const MAX_LOOKED_UP: i64 = 20_000;

const FIND_WEBHOOKS: &str = "SELECT w.id, w.tenant_id AS tenant, \
       EXISTS (SELECT FROM recoveries AS r WHERE r.webhook_id = w.id AND r.finished_at IS NULL) AS is_recovering \
     FROM webhooks AS w \
     WHERE w.deleted_at IS NULL AND ($1 IS NULL OR w.tenant_id = $1) \
       AND NOT EXISTS (SELECT FROM cancellations AS t WHERE t.webhook_id = w.id) \
     ORDER BY w.tenant_id, w.id";

impl Ledger {
    /// Begins a recovery, or finds the webhook's running one, whatever that one recovers. Begins none if all that it would
    /// recover has no body any more.
    pub async fn recovery_create(
        &self,
        actor: &Actor,
        webhook: WebhookId,
        wanted: &NewRecovery,
        bodies: Duration,
    ) -> Result<Result<Recover, Refusal>, LedgerError> {
        let id = Uuid::now_v7();
        let row = (
            recoveries::id.eq(id),
            recoveries::webhook_id.eq(webhook.as_uuid()),
            recoveries::since.eq(wanted.since),
            recoveries::until.eq(wanted.until),
            recoveries::states.eq(wanted.states()),
            recoveries::outcomes.eq(&wanted.outcomes),
            recoveries::event_types.eq(&wanted.event_types),
            recoveries::cursor.eq(wanted.first()),
        );
        // The update changes nothing. It returns the running recovery.
        let insert = diesel::insert_into(recoveries::table)
            .values(row)
            .on_conflict(recoveries::webhook_id)
            .filter_target(recoveries::finished_at.is_null())
            .do_update()
            .set(recoveries::webhook_id.eq(webhook.as_uuid()))
            .returning(Recovery::as_returning());
        self.transaction("recovery_create", async |conn| {
            if lock(conn, actor.tenant, webhook).await?.is_none() {
                return Ok(Err(Refusal::NotFound));
            }
            if is_cancelling(conn, webhook).await? {
                return Ok(Err(Refusal::Cancelling));
            }
            if wanted.is_expired(conn, webhook, bodies).await? {
                return Ok(Err(Refusal::BodyExpired));
            }
            let recovery = insert.get_result(conn).await?;
            if recovery.id != id {
                return Ok(Ok(Recover::Running(recovery)));
            }
            add_history(conn, actor, webhook, Action::Recovered, recovery.details()).await?;
            Ok(Ok(Recover::Begun(recovery)))
        })
        .await
    }

    /// Counts the deliveries that a recovery would send again now: those whose bodies are older than `bodies` are
    /// left out.
    /// `None` when the tenant has no such webhook.
    pub async fn recoverable_count(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        wanted: &NewRecovery,
        bodies: Duration,
    ) -> Result<Option<RecoverableCount>, LedgerError> {
        let own = webhooks::table.find(webhook.as_uuid()).filter(of(tenant));
        let counted = self
            .run("recoverable_count", async |conn| {
                if !diesel::select(diesel::dsl::exists(own)).get_result::<bool>(conn).await? {
                    return Ok(None);
                }
                let ids = (first_kept(conn, bodies).await?, Uuid::max());
                let mut counted = RecoverableCount { dropped: 0, skipped: 0, is_exact: true };
                let most = if wanted.event_types.is_empty() { MAX_COUNT } else { MAX_LOOKED_UP };
                for state in &wanted.states {
                    let of_state = NewRecovery { states: vec![*state], ..wanted.clone() };
                    let (looked_at, count) = of_state.count(conn, webhook, ids, most + 1).await?;
                    counted.is_exact &= looked_at <= most;
                    match state {
                        Recoverable::Dropped => counted.dropped = count.min(most),
                        Recoverable::Skipped => counted.skipped = count.min(most),
                    }
                }
                Ok(Some(counted))
            })
            .await?;
        Ok(counted)
    }

    /// The webhooks of one tenant, or of all, of which an operator may recover deliveries. A webhook is left out
    /// while its deliveries are being cancelled.
    pub async fn recoverable_webhooks(&self, tenant: Option<TenantId>) -> Result<Vec<RecoverableWebhook>, LedgerError> {
        let query = sql(FIND_WEBHOOKS).bind(tenant.map(TenantId::as_uuid));
        self.run("recoverable_webhooks", async |conn| query.load(conn).await).await
    }

    /// A webhook's recoveries, newest first.
    pub async fn recovery_list(&self, webhook: OwnWebhook, page: Page<Uuid>) -> Result<Vec<Recovery>, LedgerError> {
        let before = page.after.unwrap_or(Uuid::max());
        let query = |limit| {
            recoveries::table
                // Along one index (README, a webhook's log).
                .filter(recoveries::webhook_id.eq_any([webhook.id().as_uuid()]).and(recoveries::id.lt(before)))
                .order((recoveries::webhook_id.desc(), recoveries::id.desc()))
                .limit(limit)
                .select(Recovery::as_select())
        };
        self.run("recovery_list", async |conn| load_page(page.limit, query, conn).await).await
    }

    /// Stops one of a webhook's recoveries if it runs: its step under way is waited for, and is the last one. Returns the
    /// recovery as it is then. `None` when the webhook has no such recovery.
    ///
    /// # Errors
    /// When the database does not answer. Then all of it has happened, or nothing.
    pub async fn recovery_stop(
        &self,
        actor: &Actor,
        webhook: OwnWebhook,
        id: Uuid,
    ) -> Result<Option<Recovery>, LedgerError> {
        let own = recoveries::id.eq(id).and(recoveries::webhook_id.eq(webhook.id().as_uuid()));
        let stop = diesel::update(recoveries::table.filter(own.and(recoveries::finished_at.is_null())))
            .set((recoveries::finished_at.eq(clock::sql::now().nullable()), recoveries::is_stopped.eq(true)))
            .returning(Recovery::as_returning());
        self.transaction("recovery_stop", async |conn| {
            let Some(stopped) = stop.get_result(conn).await.optional()? else {
                let ended = recoveries::table.filter(own).select(Recovery::as_select());
                return ended.first(conn).await.optional();
            };
            let details = json!({"recovery_id": id, "resent": stopped.resent});
            add_history(conn, actor, webhook.id(), Action::Stopped, details).await?;
            Ok(Some(stopped))
        })
        .await
    }

    /// One of a webhook's recoveries.
    pub async fn recovery_find(&self, webhook: OwnWebhook, id: Uuid) -> Result<Option<Recovery>, LedgerError> {
        let query = recoveries::table
            .filter(recoveries::id.eq(id).and(recoveries::webhook_id.eq(webhook.id().as_uuid())))
            .select(Recovery::as_select());
        self.run("recovery_find", async |conn| query.first(conn).await.optional()).await
    }
}

impl NewRecovery {
    fn states(&self) -> Vec<&'static str> {
        self.states.iter().map(|state| state.as_str()).collect()
    }

    /// The lower bound of the deliveries' ids.
    fn first(&self) -> Uuid {
        DeliveryId::bound_at(self.since)
    }

    /// Counts its deliveries of these ids. Looks at `most` at most. Returns how many it has looked at, and the count.
    ///
    /// The statement reads the rows of each state along one index (README, a webhook's log), up to a limit: with both bounds
    /// inside, the planner may read the range of ids, with those of every webhook, and sort it.
    async fn count(
        &self,
        conn: &mut AsyncPgConnection,
        webhook: WebhookId,
        (first, end): (Uuid, Uuid),
        most: i64,
    ) -> QueryResult<(i64, i64)> {
        let count = sql(concat!(
            "SELECT count(*), count(*) FILTER (WHERE is_wanted) FROM (\n",
            include_str!("recovery/find_recoverable.sql"),
            " LIMIT $5) AS found"
        ))
        .bind(webhook.as_uuid())
        .bind(self.states())
        .bind(self.first().max(first))
        .bind(end_of_ids(self.until).min(end))
        .bind(most)
        .bind(&self.outcomes)
        .bind(&self.event_types);
        count.value(conn).await
    }

    /// Returns true if there are deliveries in its states, of whatever outcomes and event types, and the bodies of all of them
    /// are older than is kept.
    async fn is_expired(
        &self,
        conn: &mut AsyncPgConnection,
        webhook: WebhookId,
        bodies: Duration,
    ) -> QueryResult<bool> {
        let first_body = first_kept(conn, bodies).await?;
        let any = Self { outcomes: Vec::new(), event_types: Vec::new(), ..self.clone() };
        let (_, without) = any.count(conn, webhook, (Uuid::nil(), first_body), 1).await?;
        Ok(without > 0 && any.count(conn, webhook, (first_body, Uuid::max()), 1).await?.1 == 0)
    }
}

impl Recovery {
    /// What the webhook's history tells of it.
    fn details(&self) -> serde_json::Value {
        let mut details = json!({
            "recovery_id": self.id,
            "from": time_text::written(self.since),
            "to": self.until.and_then(time_text::written),
            "states": self.states.iter().map(|state| state.as_str()).collect::<Vec<_>>(),
        });
        if !self.event_types.is_empty() {
            details["event_types"] = json!(self.event_types);
        }
        if !self.outcomes.is_empty() {
            details["outcomes"] = self.outcomes.iter().map(|class| class.as_str()).collect();
        }
        details
    }

    /// The name of its state in the API. A stopped recovery has perhaps not read all of its deliveries.
    pub const fn state(&self) -> &'static str {
        match (self.finished_at, self.is_stopped) {
            (None, _) => "running",
            (Some(_), false) => "done",
            (Some(_), true) => "stopped",
        }
    }
}

/// Above the ids of deliveries whose events fired before `until`.
fn end_of_ids(until: Option<OffsetDateTime>) -> Uuid {
    until.map_or(Uuid::max(), DeliveryId::bound_before)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_span_ends_before_the_ids_of_its_end_and_includes_a_millisecond_that_it_cuts() {
        let id_at = |millis: u64| Uuid::from_u128(DeliveryId::bound_at_millis(millis).as_u128() + 1);
        let millis = 1_772_357_400_123;
        for (until, is_last_included) in [
            (datetime!(2026-03-01 09:30:00.123 UTC), false),
            (datetime!(2026-03-01 09:30:00.123001 UTC), true),
            (datetime!(2026-03-01 09:30:00.124 UTC), true),
        ] {
            let end = end_of_ids(Some(until));
            assert!(id_at(millis - 1) < end && id_at(millis + 1) > end, "{until}");
            assert_eq!(id_at(millis) < end, is_last_included, "{until}");
        }
        assert!(id_at(millis) < end_of_ids(None));
        assert!(end_of_ids(Some(datetime!(1969-12-31 23:59 UTC))) <= id_at(0));
    }
}
