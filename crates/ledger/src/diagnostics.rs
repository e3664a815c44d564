//! The condition of the database and of the service's work, for an operator: bounded look-ups that change nothing.

pub(crate) mod top;
pub(crate) mod work;

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::{
    connect::{clock::now, pool::Ledger},
    error::LedgerError,
    leader::LEADER_LOCK,
    partitions::{Day, LIST_PARTITIONS, around},
    statement::{rows, sql},
};

/// The server, as it says itself.
#[derive(Clone, Debug)]
pub struct ServerCondition {
    /// Its version, such as `15.14 (Debian 15.14-0+deb12u1)`.
    pub version: String,
    /// The same as a number: 150014.
    pub version_number: i32,
    /// Which standbys have to confirm a commit. Empty: none.
    pub synchronous_names: String,
    /// What a commit waits for.
    pub synchronous_commit: String,
    /// Whether it writes to the disk what it says it has.
    pub is_durable: bool,
    /// Standbys that are connected.
    pub standbys: i64,
    /// Of these, those that confirm commits.
    pub synchronous: i64,
    /// Of these, those of which this user may see nothing.
    pub hidden: i64,
    /// Connections of clients.
    pub connections: i64,
    /// Of these, those of this user.
    pub of_role: i64,
    /// Of these, those to this database.
    pub of_database: i64,
    /// The maximum of connections, without those that are reserved for others.
    pub max_connections: i32,
    /// This user, as SQL names it. `None` for a superuser, for whom no limit holds.
    pub role: Option<String>,
    /// The maximum of connections of this user. Negative: there is no limit.
    pub role_limit: i32,
    /// The maximum of connections to this database. Negative: there is no limit.
    pub database_limit: i32,
    /// `max_locks_per_transaction`: the server has room for this many locks of each of [`Self::lock_holders`].
    pub max_locks: i32,
    /// Connections and prepared transactions that may hold locks.
    pub lock_holders: i32,
    /// The database of this server with the oldest transaction ids.
    pub oldest_database: String,
    /// The age of these ids, in transactions.
    pub ids_age: i64,
    /// The table of this database with the oldest transaction ids.
    pub oldest_table: Option<String>,
    /// The age of that table's ids, in transactions.
    pub table_age: Option<i64>,
    /// The age from which autovacuum freezes a table, in transactions.
    pub freeze_max_age: i64,
    /// The archive of WAL: `off`, `on` or `always`.
    pub archive_mode: String,
    /// The time since the last WAL file was archived, in seconds; if none was, since the server counts.
    pub archive_age: Option<f64>,
    /// True if the latest try to archive failed.
    pub archive_fails: bool,
    /// The size of this database.
    pub bytes: i64,
    /// How long the oldest transaction in this database lasts, in seconds, as far as this user may see.
    pub oldest_transaction: Option<f64>,
}

rows! { ServerCondition {
    version, version_number, synchronous_names, synchronous_commit, is_durable, standbys, synchronous, hidden,
    connections, of_role, of_database, max_connections, role, role_limit, database_limit, max_locks, lock_holders,
    oldest_database, ids_age, oldest_table, table_age, freeze_max_age, archive_mode, archive_age, archive_fails, bytes,
    oldest_transaction,
} }

/// Connections to this database that have a name and an address in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionsSeen {
    /// The process's name.
    pub name: String,
    /// The host. `None` for a local socket.
    pub address: Option<String>,
    /// How many there are.
    pub connections: i64,
    /// The connections whose commits wait for a synchronous standby. Calls that timed out leave such connections.
    pub committing: i64,
    /// When the oldest began.
    pub since: OffsetDateTime,
    /// Whether one of them is the leader's.
    pub leads: bool,
}

rows! { ConnectionsSeen { name, address, connections, committing, since, leads } }

/// What the leader noted of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationSeen {
    /// The sentinel queue.
    pub id: Option<Uuid>,
    /// Whether the broker's queues are being rebuilt.
    pub is_rebuilding: bool,
}

rows! { GenerationSeen { id, is_rebuilding } }

/// The days that have partitions, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaysSeen {
    /// Today, by the database's clock.
    pub today: Date,
    /// The last day for which partitions are made ahead of time.
    pub wanted: Date,
    /// Days with a partition of each table.
    pub made: Vec<Date>,
}

impl Ledger {
    /// The condition of the server.
    pub async fn server_condition(&self) -> Result<ServerCondition, LedgerError> {
        let query = sql(include_str!("diagnostics/server.sql"));
        self.run("server_condition", async |conn| query.get_result(conn).await).await
    }

    /// Who is connected to this database, but for the caller's connection.
    pub async fn connections_seen(&self) -> Result<Vec<ConnectionsSeen>, LedgerError> {
        let query = sql(include_str!("diagnostics/connections.sql")).bind(LEADER_LOCK);
        self.run("connections_seen", async |conn| query.load(conn).await).await
    }

    /// What the leader noted of the broker.
    pub async fn generation_seen(&self) -> Result<GenerationSeen, LedgerError> {
        let query = "SELECT id, rebuild_id IS NOT NULL AS is_rebuilding FROM broker_generation";
        self.run("generation_seen", async |conn| sql(query).get_result(conn).await).await
    }

    /// Which days have partitions.
    pub async fn days_seen(&self) -> Result<DaysSeen, LedgerError> {
        let (today, names) = self
            .run("days_seen", async |conn| {
                let names: Vec<String> = sql(LIST_PARTITIONS).values(conn).await?;
                Ok((now(conn).await?.date(), names))
            })
            .await?;
        let mut days: Vec<Date> = names.iter().filter_map(|name| Day::of_partition(name)).map(Day::date).collect();
        days.sort_unstable();
        let made = days.chunk_by(|one, next| one == next).filter(|tables| tables.len() == 3).map(|tables| tables[0]);
        let made = made.collect();
        let wanted = around(today).last().map_or(today, Day::date);
        Ok(DaysSeen { today, wanted, made })
    }
}
