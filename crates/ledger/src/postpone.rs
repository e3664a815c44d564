//! Deliveries that cannot be attempted for now, for no fault of their receivers.

use diesel::sql_types::{SmallInt, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::DeliveryId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{batch::batch_statement, error::LedgerError, pool::Ledger};

batch_statement! {
    PostponeDeliveries -> (SqlUuid,);
    late { delivery: Uuid => SqlUuid, made: i16 => SmallInt, until: OffsetDateTime => Timestamptz }
    " UPDATE deliveries AS d SET next_attempt_at = late.until FROM late \
      WHERE d.id = late.delivery AND d.attempts = late.made AND d.state IN ('pending', 'retrying') RETURNING d.id"
}

impl Ledger {
    /// Makes a delivery's next attempt due later, unless it does not wait any more or has been attempted meanwhile:
    /// `attempts` is how many attempts were made. `false` then.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_postpone(
        &self,
        delivery: DeliveryId,
        attempts: u16,
        until: OffsetDateTime,
    ) -> Result<bool, LedgerError> {
        let made = i16::try_from(attempts).unwrap_or(i16::MAX);
        let statement = PostponeDeliveries { delivery: vec![delivery.as_uuid()], made: vec![made], until: vec![until] };
        let postponed: Vec<(Uuid,)> = self.run(async |conn| statement.load(conn).await).await?;
        Ok(!postponed.is_empty())
    }
}
