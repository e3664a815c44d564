//! Which webhooks are at work, held and failing: by the ledger alone, for any number of webhooks.

use std::time::Duration;

use domain::DeliveryId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::{clock::now, pool::Ledger},
    error::LedgerError,
    statement::{rows, sql},
};

/// The deliveries whose attempts are looked at: the latest ones, for at most this time.
const DELIVERIES: i64 = 100_000;
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Webhooks of a kind, at the most.
const WEBHOOKS: i64 = 1_000;
/// Pages of held jobs that are looked at for the webhooks that hold most: some 100 jobs each.
const PAGES: i64 = 2_000;

/// Attempts of one webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookAttempts {
    /// The webhook.
    pub webhook_id: Uuid,
    /// Its tenant, unless the webhook is gone.
    pub tenant_id: Option<Uuid>,
    /// Its attempts.
    pub attempts: i64,
    /// Failed ones of these.
    pub failed: i64,
    /// The most frequent outcome class of the failed ones.
    pub failure: Option<String>,
    /// The time that all attempts took together, in seconds.
    pub seconds: f64,
    /// Attempts that took a second or more.
    pub slow_attempts: i64,
    /// The time that these took together, in seconds.
    pub slow_seconds: f64,
}

rows! { WebhookAttempts { webhook_id, tenant_id, attempts, failed, failure, seconds, slow_attempts, slow_seconds } }

/// Failures of one webhook since its last success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookFailures {
    /// The webhook.
    pub webhook_id: Uuid,
    /// Its tenant.
    pub tenant_id: Uuid,
    /// Its failures since the last success.
    pub failed: i64,
    /// The latest one, in words.
    pub last_failure: Option<String>,
}

rows! { WebhookFailures { webhook_id, tenant_id, failed, last_failure } }

/// Held jobs of one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookHeld {
    /// The webhook.
    pub webhook_id: Uuid,
    /// Its tenant, unless the webhook is gone.
    pub tenant_id: Option<Uuid>,
    /// Its held jobs, up to [`Top::MOST_HELD`].
    pub jobs: i64,
    /// Those of these that wait for the webhook's activation. The others wait as the webhook is slow.
    pub paused: i64,
    /// The time at which the first of these was held.
    pub oldest: Option<OffsetDateTime>,
    /// The time at which the next jobs of an active webhook are published.
    pub release_at: Option<OffsetDateTime>,
}

rows! { WebhookHeld { webhook_id, tenant_id, jobs, paused, oldest, release_at } }

/// Webhooks at work, held and failing.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// The database's time.
    pub now: OffsetDateTime,
    /// By the attempts of the latest deliveries.
    pub attempts: Vec<WebhookAttempts>,
    /// By their failures since the last success, retries of old deliveries among them.
    pub failures: Vec<WebhookFailures>,
    /// By their held jobs: the webhooks that hold most, by a sample if there are very many held jobs.
    pub held: Vec<WebhookHeld>,
    /// The number of the latest deliveries whose attempts were looked at.
    pub deliveries: i64,
    /// The id of the oldest of these, if there are older ones.
    pub cut_at: Option<DeliveryId>,
}

impl Top {
    /// The most held jobs that are counted of a webhook.
    pub const MOST_HELD: i64 = 2_000;
}

impl Ledger {
    /// Looks at what happened within `since`, and at the `limit` webhooks that hold most jobs. Reads a bounded number of
    /// rows, and changes nothing.
    pub async fn top(&self, since: Duration, limit: usize) -> Result<Top, LedgerError> {
        let now = self.run("top", async |conn| now(conn).await).await?;
        let begin = now - since;
        let latest = sql(include_str!("top_deliveries.sql")).bind(DeliveryId::bound_at(now - AGE)).bind(DELIVERIES);
        let (deliveries, oldest): (_, Option<Uuid>) = self.run("top", async |conn| latest.value(conn).await).await?;
        let attempts =
            sql(include_str!("top_attempts.sql")).bind(begin).bind(oldest.unwrap_or(Uuid::max())).bind(DELIVERIES);
        let attempts: Vec<WebhookAttempts> = self.run("top", async |conn| attempts.load(conn).await).await?;
        let failures = sql(include_str!("top_failing.sql")).bind(begin).bind(WEBHOOKS);
        let failures: Vec<WebhookFailures> = self.run("top", async |conn| failures.load(conn).await).await?;
        let held = sql(include_str!("top_held.sql"))
            .bind(i64::try_from(limit).unwrap_or(WEBHOOKS).min(WEBHOOKS))
            .bind(Top::MOST_HELD)
            .bind(PAGES);
        let held: Vec<WebhookHeld> = self.run("top", async |conn| held.load(conn).await).await?;
        let cut_at = oldest.filter(|_| deliveries == DELIVERIES).map(DeliveryId::from);
        Ok(Top { now, attempts, failures, held, deliveries, cut_at })
    }
}
