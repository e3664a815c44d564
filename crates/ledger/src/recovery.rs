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
use domain::{DeliveryId, OutcomeClass, TenantId, WebhookId, parse_name, time_text};
use serde_json::json;
use strum::{Display, EnumString, IntoStaticStr};
use time::OffsetDateTime;
use uuid::Uuid;

use self::resends::first_kept;
use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    history::{Action, Actor, add_history},
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
    /// and whose last attempt had one of these outcomes, or any outcome if there is none here.
    pub outcomes: Vec<OutcomeClass>,
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
    /// The last delivery that it has looked at.
    pub cursor: Uuid,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was done.
    pub finished_at: Option<OffsetDateTime>,
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
    /// 100,000 at most.
    pub count: i64,
    /// Whether there are no more.
    pub is_exact: bool,
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

/// The count stops here: some tens of milliseconds, or a second or two for deliveries of certain outcomes.
const MAX_COUNT: i64 = 100_000;

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
                wanted.count(conn, webhook, ids, (MAX_COUNT + 1, &wanted.outcomes)).await.map(Some)
            })
            .await?;
        Ok(counted.map(|(looked_at, count)| RecoverableCount {
            count: count.min(MAX_COUNT),
            is_exact: looked_at <= MAX_COUNT,
        }))
    }

    /// The webhooks of one tenant, or of all, of which an operator may recover deliveries. A webhook is left out
    /// while its deliveries are being cancelled.
    pub async fn recoverable_webhooks(&self, tenant: Option<TenantId>) -> Result<Vec<RecoverableWebhook>, LedgerError> {
        let query = sql(FIND_WEBHOOKS).bind(tenant.map(TenantId::as_uuid));
        self.run("recoverable_webhooks", async |conn| query.load(conn).await).await
    }

    /// One of a webhook's recoveries.
    pub async fn recovery_find(&self, webhook: OwnWebhook, id: Uuid) -> Result<Option<Recovery>, LedgerError> {
        let query = recoveries::table
            .filter(recoveries::id.eq(id).and(recoveries::webhook_id.eq(webhook.id().as_uuid())))
            .select(Recovery::as_select());
        self.run("recovery_find", async |conn| query.first(conn).await.optional()).await
    }

    /// The webhook's recovery that is running.
    pub async fn recovery_running(&self, webhook: OwnWebhook) -> Result<Option<Recovery>, LedgerError> {
        let query = recoveries::table
            .filter(recoveries::webhook_id.eq(webhook.id().as_uuid()).and(recoveries::finished_at.is_null()))
            .select(Recovery::as_select());
        self.run("recovery_running", async |conn| query.first(conn).await.optional()).await
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

    /// Counts the deliveries of these ids in its states and of these outcomes. Looks at `most` at most. Returns how many it
    /// has looked at, and the count.
    async fn count(
        &self,
        conn: &mut AsyncPgConnection,
        webhook: WebhookId,
        (first, end): (Uuid, Uuid),
        (most, outcomes): (i64, &[OutcomeClass]),
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
        .bind(outcomes);
        count.value(conn).await
    }

    /// Returns true if there are deliveries in its states, of whatever outcomes, and the bodies of all of them are older than is kept.
    async fn is_expired(
        &self,
        conn: &mut AsyncPgConnection,
        webhook: WebhookId,
        bodies: Duration,
    ) -> QueryResult<bool> {
        let first_body = first_kept(conn, bodies).await?;
        let (_, without) = self.count(conn, webhook, (Uuid::nil(), first_body), (1, &[])).await?;
        Ok(without > 0 && self.count(conn, webhook, (first_body, Uuid::max()), (1, &[])).await?.1 == 0)
    }
}

impl Recovery {
    /// What the webhook's history tells of it.
    fn details(&self) -> serde_json::Value {
        let mut details = json!({
            "recovery_id": self.id,
            "since": time_text::written(self.since),
            "until": self.until.and_then(time_text::written),
            "states": self.states.iter().map(|state| state.as_str()).collect::<Vec<_>>(),
        });
        if !self.outcomes.is_empty() {
            details["outcomes"] = self.outcomes.iter().map(|class| class.as_str()).collect();
        }
        details
    }
}

/// Above the ids of deliveries whose events fired before `until`, rounded up: ids carry whole milliseconds.
fn end_of_ids(until: Option<OffsetDateTime>) -> Uuid {
    let rounded_up = |until: OffsetDateTime| until.saturating_add(time::Duration::nanoseconds(999_999));
    until.map_or(Uuid::max(), |until| DeliveryId::bound_at(rounded_up(until)))
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
