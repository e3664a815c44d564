//! How a webhook's attempts went, by hour or day. Written with its health, kept for 90 days.

use diesel::{
    QueryableByName,
    sql_types::{BigInt, SmallInt, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
use time::OffsetDateTime;

use crate::{admin::webhooks::OwnWebhook, error::LedgerError, pool::Ledger};

/// Attempts of one hour or day with one outcome class and a duration of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, QueryableByName)]
pub struct Tally {
    /// When the hour or day began (UTC).
    #[diesel(sql_type = Timestamptz)]
    pub step: OffsetDateTime,
    /// The outcome class.
    #[diesel(sql_type = Text)]
    pub outcome: String,
    /// The number of their [`domain::DurationBucket`].
    #[diesel(sql_type = SmallInt)]
    pub bucket: i16,
    /// How many there were.
    #[diesel(sql_type = BigInt)]
    pub attempts: i64,
    /// How many of them dropped their delivery.
    #[diesel(sql_type = BigInt)]
    pub dropped: i64,
}

/// The length of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsStep {
    /// An hour.
    #[default]
    Hour,
    /// A day in UTC.
    Day,
}

impl StatsStep {
    /// Its name in the API, which PostgreSQL knows too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

const LIST: &str = "SELECT date_trunc($4, hour, 'UTC') AS step, outcome, bucket, \
            sum(attempts)::bigint AS attempts, sum(dropped)::bigint AS dropped \
     FROM webhook_stats WHERE webhook_id = $1 AND hour >= $2 AND hour < $3 GROUP BY step, outcome, bucket ORDER BY step";

impl Ledger {
    /// What a webhook's attempts that ended from `from` to before `until` came to, oldest first. Steps without an
    /// attempt have no entry. Both times are the beginnings of hours.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn stats_list(
        &self,
        webhook: OwnWebhook,
        (from, until): (OffsetDateTime, OffsetDateTime),
        step: StatsStep,
    ) -> Result<Vec<Tally>, LedgerError> {
        let query = diesel::sql_query(LIST)
            .bind::<SqlUuid, _>(webhook.id().as_uuid())
            .bind::<Timestamptz, _>(from)
            .bind::<Timestamptz, _>(until)
            .bind::<Text, _>(step.as_str());
        self.run(async |conn| query.load(conn).await).await
    }
}
