//! Why dispatchers accept no jobs at present, and what they ask before they stop.

use diesel::pg::data_types::PgInterval;
use domain::{TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    statement::{rows, sql},
};

/// The operator among the holders of brakes; the others are dispatchers.
const OPERATOR_HOLDER: &str = "operator";

/// A brake that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brake {
    /// `operator`, or the id of a dispatcher's process.
    pub holder: String,
    /// The operator's reason, or the name of the dispatcher's.
    pub reason: String,
    /// Since when, by the database's clock.
    pub since: OffsetDateTime,
}

rows! { Brake { holder, reason, since } }

impl Brake {
    /// True if an operator has set it, for all dispatchers.
    pub fn is_operators(&self) -> bool {
        self.holder == OPERATOR_HOLDER
    }
}

/// A dispatcher that has not renewed its brake for so long is gone.
const MAX_RENEWAL_AGE: time::Duration = time::Duration::MINUTE;
const LIST_BRAKES: &str = "SELECT holder, reason, since FROM brakes \
     WHERE holder = 'operator' OR renewed_at > now() - $1 ORDER BY holder = 'operator' DESC, since";
const SET_BRAKE: &str = "INSERT INTO brakes AS b (holder, reason) VALUES ($1, $2) \
     ON CONFLICT (holder) DO UPDATE SET reason = excluded.reason, renewed_at = now(), \
         since = CASE WHEN b.reason = excluded.reason THEN b.since ELSE now() END";
/// Removes those of dead processes, too.
const RELEASE_BRAKE: &str = "DELETE FROM brakes WHERE holder = $1 OR (holder <> 'operator' AND renewed_at < now() - interval '1 hour') \
     RETURNING holder, reason, since";
const FIND_WELL_WEBHOOKS: &str = "SELECT webhook_id FROM webhook_health \
     WHERE webhook_id = ANY ($1) AND last_success_at > now() - interval '1 day' \
     AND (failing_since IS NULL OR failing_since >= $2)";
/// The next $2 tenants after $1 with active webhooks, and one more to say that there are further ones. Of each a host by chance,
/// then further hosts. The index of a tenant's webhooks finds the tenants.
const FIND_CANDIDATES: &str = "WITH RECURSIVE tenants AS ( \
       (SELECT tenant_id, 1 AS place FROM webhooks \
         WHERE tenant_id > $1 AND is_active AND deleted_at IS NULL ORDER BY tenant_id LIMIT 1) \
       UNION ALL \
       SELECT next.tenant_id, place + 1 FROM tenants CROSS JOIN LATERAL ( \
         SELECT w.tenant_id FROM webhooks AS w \
         WHERE w.tenant_id > tenants.tenant_id AND w.is_active AND w.deleted_at IS NULL \
         ORDER BY w.tenant_id LIMIT 1) AS next \
       WHERE place <= $2 \
     ) \
     SELECT tenants.tenant_id, place, hosts.url FROM tenants CROSS JOIN LATERAL ( \
       SELECT url, row_number() OVER (ORDER BY random()) AS nth FROM ( \
         SELECT DISTINCT ON (split_part(w.url, '/', 3)) w.url FROM webhooks AS w \
         WHERE w.tenant_id = tenants.tenant_id AND w.is_active AND w.deleted_at IS NULL) AS of_host \
       ORDER BY nth LIMIT 4) AS hosts \
     ORDER BY nth, place LIMIT $2 + 1";

fn interval(time: time::Duration) -> PgInterval {
    PgInterval::from_microseconds(i64::try_from(time.whole_microseconds()).unwrap_or(i64::MAX))
}

impl Ledger {
    /// The brakes that are on: the operator's first.
    pub async fn brakes(&self) -> Result<Vec<Brake>, LedgerError> {
        self.brakes_within(MAX_RENEWAL_AGE).await
    }

    /// The brakes that are on, or whose process died within this time.
    pub async fn brakes_within(&self, time: time::Duration) -> Result<Vec<Brake>, LedgerError> {
        let query = sql(LIST_BRAKES).bind(interval(time));
        self.run("brakes_within", async |conn| query.load(conn).await).await
    }

    /// Brakes all dispatchers, until [`Ledger::brake_release`] without a holder.
    pub async fn brake_all(&self, reason: &str) -> Result<(), LedgerError> {
        self.brake_renew(OPERATOR_HOLDER, reason).await
    }

    /// Says that a dispatcher accepts no jobs, for the next minute.
    pub async fn brake_renew(&self, holder: &str, reason: &str) -> Result<(), LedgerError> {
        let query = sql(SET_BRAKE).bind(holder).bind(reason);
        self.run("brake_renew", async |conn| query.execute(conn).await.map(drop)).await
    }

    /// Releases a dispatcher's brake, or the operator's if no holder is given. Returns whether it was on.
    pub async fn brake_release(&self, holder: Option<&str>) -> Result<bool, LedgerError> {
        let holder = holder.unwrap_or(OPERATOR_HOLDER);
        let query = sql(RELEASE_BRAKE).bind(holder);
        let released: Vec<Brake> = self.run("brake_release", async |conn| query.load(conn).await).await?;
        Ok(released.iter().any(|brake| brake.holder == holder))
    }

    /// Those of the webhooks whose receivers succeeded within the last day, and were not failing before this time.
    pub async fn receivers_well(
        &self,
        webhooks: &[WebhookId],
        failing_from: OffsetDateTime,
    ) -> Result<Vec<WebhookId>, LedgerError> {
        let query = sql(FIND_WELL_WEBHOOKS).bind(webhooks).bind(failing_from);
        self.run("receivers_well", async |conn| query.values(conn).await).await
    }

    /// URLs to find out whether any receiver can be reached, `most` at most: of a host of each of the next `most` tenants after
    /// one (`None`: of the first), then of up to three further hosts of each; and the last of these tenants. `None` as the
    /// last one: there are no further tenants.
    pub async fn receivers_to_probe(
        &self,
        after: Option<TenantId>,
        most: u16,
    ) -> Result<(Vec<String>, Option<TenantId>), LedgerError> {
        let query = sql(FIND_CANDIDATES).bind(after.map_or(Uuid::nil(), TenantId::as_uuid)).bind(i32::from(most));
        let mut rows: Vec<(TenantId, i32, String)> =
            self.run("receivers_to_probe", async |conn| query.values(conn).await).await?;
        let (all, last) = (rows.len(), i32::from(most));
        rows.retain(|(_, place, _)| *place <= last);
        let has_further = rows.len() < all;
        let last = rows.iter().find(|(_, place, _)| has_further && *place == last).map(|(tenant, ..)| *tenant);
        Ok((rows.into_iter().map(|(.., url)| url).collect(), last))
    }
}
