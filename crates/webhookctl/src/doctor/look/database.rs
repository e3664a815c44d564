//! The database.

use domain::error_chain;
use ledger::{Ledger, LedgerError, SecretKeys};
use tokio::time::timeout;

use super::{
    super::observed::{Database, DatabaseSeen, KeysSeen, Looked},
    STEP_TIMEOUT,
};

/// Looks at the database, if it answers at all.
pub(super) async fn look(ledger: Option<&Ledger>, keys: Option<&SecretKeys>) -> Database {
    let Some(ledger) = ledger else { return Database::Unknown };
    // A read-only server is found here: connections are made to a server that takes writes.
    let clock = match timeout(STEP_TIMEOUT, ledger.clock()).await {
        Err(_) => return Database::Unavailable(format!("no answer within {} s", STEP_TIMEOUT.as_secs())),
        Ok(Err(LedgerError::ReadOnly)) => return Database::ReadOnly,
        Ok(Err(error)) => return Database::Unavailable(error_chain(&error)),
        // The second one waits for no connection, and tells the time better.
        Ok(Ok(first)) => timeout(STEP_TIMEOUT, ledger.clock()).await.ok().and_then(Result::ok).unwrap_or(first),
    };
    let used = async {
        let keys = keys?;
        let used = within(ledger.keys_used(keys)).await;
        Some(used.map(|used| KeysSeen { configured: keys.ids().map(str::to_owned).collect(), used }))
    };
    let (server, migrations, days, connections, generation, work, retries, overdue, attempts, brakes, keys) = tokio::join!(
        within(ledger.server_condition()),
        within(ledger.migrations_seen()),
        within(ledger.days_seen()),
        within(ledger.connections_seen()),
        within(ledger.generation_seen()),
        within(ledger.work_seen()),
        within(ledger.retries_seen()),
        within(ledger.overdue_seen()),
        within(ledger.attempts_seen()),
        within(ledger.brakes()),
        used,
    );
    Database::Seen(Box::new(DatabaseSeen {
        clock: (clock.local - clock.database, clock.round_trip),
        now: clock.database,
        server,
        migrations,
        days,
        keys,
        connections,
        generation,
        work,
        retries,
        overdue,
        attempts,
        brakes,
    }))
}

/// Two looks' time: one may have to wait for the connections of the others.
async fn within<T>(look: impl Future<Output = Result<T, LedgerError>>) -> Looked<T> {
    match timeout(STEP_TIMEOUT * 2, look).await {
        Ok(seen) => seen.map_err(|error| error_chain(&error)),
        Err(_) => Err(format!("no answer within {} s", (STEP_TIMEOUT * 2).as_secs())),
    }
}
