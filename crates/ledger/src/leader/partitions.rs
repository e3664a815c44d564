//! Makes the partitions ahead of time.

use std::collections::BTreeSet;

use time::Date;

use crate::{
    error::LedgerError,
    leader::Leader,
    partitions::{Day, LIST_PARTITIONS, around, make_partitions},
    statement::sql,
};

impl Leader {
    /// Makes the missing partitions around `today`.
    pub async fn partitions_ensure(&mut self, today: Date) -> Result<(), LedgerError> {
        self.run("partitions_ensure", async |conn| make_partitions(conn, around(today)).await.map(|_| ())).await
    }

    /// Counts the days after today that have partitions without a gap.
    pub async fn partitions_ahead(&mut self, today: Date) -> Result<u32, LedgerError> {
        let days = self.days().await?;
        let later = std::iter::successors(today.next_day(), |day| day.next_day());
        let ahead = later.take_while(|day| days.contains(&Day::from(*day))).count();
        Ok(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    /// Every day that has a partition, oldest first.
    pub(crate) async fn days(&mut self) -> Result<BTreeSet<Day>, LedgerError> {
        let names: Vec<String> = self.run("days", async |conn| sql(LIST_PARTITIONS).values(conn).await).await?;
        Ok(names.iter().filter_map(|name| Day::of_partition(name)).collect())
    }
}
