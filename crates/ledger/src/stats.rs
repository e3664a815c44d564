//! How a webhook's attempts went, by hour or day. Written with its health, kept for 90 days.

use domain::{OutcomeClass, TenantId, WebhookId};
use strum::{EnumString, IntoStaticStr};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    leader::Leader,
    statement::{rows, sql},
    webhook::OwnWebhook,
};

/// Attempts of one hour or day with one outcome class and a duration of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// When the hour or day began (UTC).
    pub step: OffsetDateTime,
    /// The outcome class.
    pub outcome: OutcomeClass,
    /// The number of their [`domain::DurationBucket`].
    pub bucket: i16,
    /// How many there were.
    pub attempts: i64,
    /// How many of them dropped their delivery.
    pub dropped: i64,
}

rows! { Tally { step, outcome, bucket, attempts, dropped } }

/// What a webhook's attempts of one hour came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourCounts {
    /// The webhook.
    pub webhook: WebhookId,
    /// When the hour began (UTC).
    pub hour: OffsetDateTime,
    /// Attempts that succeeded.
    pub succeeded: i64,
    /// Attempts that failed.
    pub failed: i64,
    /// Failed attempts that dropped their delivery.
    pub dropped: i64,
}

rows! { HourCounts { webhook, hour, succeeded, failed, dropped } }

/// The length of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum StatsStep {
    /// An hour.
    #[default]
    Hour,
    /// A day in UTC.
    Day,
}

impl StatsStep {
    /// Its name in the API, which PostgreSQL knows too.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// Step by step: to compute the step of each row would take three times as long.
const LIST: &str = "SELECT step, found.* \
     FROM generate_series(date_trunc($4, $2, 'UTC'), $3, ('1 ' || $4)::interval) AS step \
     CROSS JOIN LATERAL ( \
       SELECT outcome, bucket, sum(attempts)::bigint AS attempts, sum(dropped)::bigint AS dropped FROM webhook_stats \
       WHERE webhook_id = $1 AND hour >= greatest(step, $2) AND hour < least(step + ('1 ' || $4)::interval, $3) \
       GROUP BY outcome, bucket \
     ) AS found ORDER BY step";

const BY_WEBHOOK: &str = "SELECT webhook_id AS webhook, hour, \
            coalesce(sum(attempts) FILTER (WHERE outcome = 'success'), 0)::bigint AS succeeded, \
            coalesce(sum(attempts) FILTER (WHERE outcome <> 'success'), 0)::bigint AS failed, \
            sum(dropped)::bigint AS dropped \
     FROM webhook_stats WHERE hour >= $3 AND hour < $4 \
       AND webhook_id IN (SELECT id FROM webhooks WHERE id = ANY ($1) AND tenant_id = $2) \
     GROUP BY webhook_id, hour ORDER BY webhook_id, hour";

impl Ledger {
    /// What the attempts of several of the tenant's webhooks came to, from `from` to before `until`: for each webhook
    /// and hour, in their order. Hours without an attempt have no entry. Both times are the beginnings of hours.
    pub async fn stats_by_webhook(
        &self,
        tenant: TenantId,
        webhooks: &[WebhookId],
        (from, until): (OffsetDateTime, OffsetDateTime),
    ) -> Result<Vec<HourCounts>, LedgerError> {
        let ids: Vec<Uuid> = webhooks.iter().map(|id| id.as_uuid()).collect();
        let query = sql(BY_WEBHOOK).bind(ids).bind(tenant.as_uuid()).bind(from).bind(until);
        self.run("stats_by_webhook", async |conn| query.load(conn).await).await
    }

    /// What a webhook's attempts that ended from `from` to before `until` came to, oldest first. Steps without an
    /// attempt have no entry. Both times are the beginnings of hours.
    pub async fn stats_list(
        &self,
        webhook: OwnWebhook,
        (from, until): (OffsetDateTime, OffsetDateTime),
        step: StatsStep,
    ) -> Result<Vec<Tally>, LedgerError> {
        let query = sql(LIST).bind(webhook.id().as_uuid()).bind(from).bind(until).bind(step.as_str());
        self.run("stats_list", async |conn| query.load_known(conn).await).await
    }
}

impl Leader {
    /// Deletes up to 5,000 rows of statistics of hours that began 90 days ago or earlier. Returns how many.
    pub async fn stats_clear(&mut self) -> Result<usize, LedgerError> {
        let query = sql("DELETE FROM webhook_stats WHERE ctid = ANY (ARRAY( \
               SELECT ctid FROM webhook_stats WHERE hour < now() - interval '90 days' ORDER BY hour LIMIT 5000))");
        self.run("stats_clear", async |conn| query.execute(conn).await).await
    }
}
