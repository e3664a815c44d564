//! One connection to the database, from the handshake to the session's settings.

pub(crate) mod address;
pub(crate) mod clock;
mod driver;
pub(crate) mod hosts;
pub(crate) mod pool;
pub(crate) mod session;
pub(crate) mod tenant_queue;
pub(crate) mod timings;

use std::{error::Error as _, io, time::Duration};

use diesel::ConnectionError;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tls::{Failure, Peer};
use tokio_postgres::{
    Client, Config,
    config::{SslNegotiation, TargetSessionAttrs},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    connect::{
        address::{Address, LedgerConfig},
        driver::{Driver, not_connected},
        hosts::{LatestHost, first_usable},
        session::ServerSessions,
    },
    error::LedgerError,
};

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that has acknowledged nothing for this time is gone: neither data nor the probes of an idle connection.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// The first probe of an idle connection, the pause to the next one, and the number of probes. The connection ends by
/// [`PEER_TIMEOUT`] at the second one: without a pause here, the system's is 75 s.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 2);
/// How PostgreSQL is told from other protocols when TLS begins at once (`sslnegotiation=direct`).
const ALPN_PROTOCOL: &[u8] = b"postgresql";

/// See the README: the statements of `delivery` find their rows by key, and each connection plans them once. A new plan
/// for every batch, over all partitions, would cost more than the statement itself. A plan made while a table was
/// nearly empty must serve when it is full. So table scans, and all joins but nested loops, are off.
///
/// A database or a user may have another default of isolation, under which statements that meet at a row would fail
/// (40001) instead of waiting for one another.
const SESSION_SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
     SET plan_cache_mode = force_generic_plan; SET timezone = 'UTC'; SET idle_in_transaction_session_timeout = '20s'; \
     SET default_transaction_isolation = 'read committed'";

/// Connects. A statement may take as long as `call_timeout`.
pub(crate) async fn establish(
    address: &Address,
    process: &'static str,
    call_timeout: Duration,
    (sessions, latest_host): (&ServerSessions, &LatestHost),
) -> Result<AsyncPgConnection, ConnectionError> {
    let tls = encryption(address)?;
    let (settings, client, mut driver) = log_in(settings(address, process)?, &tls, latest_host).await?;
    sessions.claim((&settings, tls), &client, &mut driver).await?;
    let mut conn = AsyncPgConnection::try_from_client_and_connection(client, driver).await?;
    conn.batch_execute(&session(call_timeout)).await.map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(conn)
}

/// The settings of a session. The server ends a statement a little after the caller's deadline, so that the caller knows why
/// it failed. It ends the session of a vanished host as this side ends a connection to one.
fn session(call_timeout: Duration) -> String {
    let (idle, interval, probes) = KEEPALIVE;
    format!(
        "{SESSION_SETTINGS}; SET statement_timeout = '{}ms'; SET tcp_user_timeout = '{}s'; SET tcp_keepalives_idle = {}; \
         SET tcp_keepalives_interval = {}; SET tcp_keepalives_count = {probes}",
        (call_timeout + call_timeout / 10).as_millis(),
        PEER_TIMEOUT.as_secs(),
        idle.as_secs(),
        interval.as_secs()
    )
}

/// Connects to the host that accepts writes. Returns its settings too.
async fn log_in(
    settings: Config,
    tls: &MakeRustlsConnect,
    latest_host: &LatestHost,
) -> Result<(Config, Client, Driver), ConnectionError> {
    first_usable(&settings, latest_host, CONNECT_TIMEOUT, async |settings| {
        let (client, driver) = settings.connect(tls.clone()).await.map_err(|error| refused(&error))?;
        Ok((settings, client, driver))
    })
    .await
}

/// Connects without diesel, for what diesel does not pass on.
pub(crate) async fn client(config: &LedgerConfig, latest_host: &LatestHost) -> Result<Client, ConnectionError> {
    let address = Address::of(config).map_err(not_connected)?;
    let settings = settings(&address, config.application_name)?;
    let (_settings, client, driver) = log_in(settings, &encryption(&address)?, latest_host).await?;
    // The driver ends with its client.
    tokio::spawn(driver);
    client.batch_execute(&session(config.call_timeout)).await.map_err(|error| refused(&error))?;
    Ok(client)
}

fn settings(address: &Address, process: &'static str) -> Result<Config, ConnectionError> {
    let mut settings = address.with_password().map_err(|error| not_connected(LedgerError::PasswordFile(error)))?;
    let (idle, interval, probes) = KEEPALIVE;
    settings
        .application_name(process)
        .connect_timeout(CONNECT_TIMEOUT)
        // Of several hosts, the primary.
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .keepalives_idle(idle)
        .keepalives_interval(interval)
        .keepalives_retries(probes)
        .tcp_user_timeout(PEER_TIMEOUT);
    Ok(settings)
}

/// Reads the files for each connection, so a certificate that was replaced needs no restart. Without TLS, the settings of
/// the connection do not ask for it.
fn encryption(address: &Address) -> Result<MakeRustlsConnect, ConnectionError> {
    let files = address.tls.clone().unwrap_or_default();
    let read = files.read().map_err(|error| LedgerError::Tls(Failure::new(error.to_string())));
    let mut config = read.map_err(not_connected)?;
    if address.settings.get_ssl_negotiation() == SslNegotiation::Direct {
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn refused(error: &tokio_postgres::Error) -> ConnectionError {
    let cause = error.source();
    // The client reports a read-only server by this kind without a number. The system's error has one.
    let is_read_only = cause
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none());
    if is_read_only {
        return not_connected(LedgerError::ReadOnly);
    }
    if let Some(failure) = Failure::find(error, Peer::Server) {
        return not_connected(LedgerError::Tls(failure));
    }
    ConnectionError::BadConnection(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
}

#[cfg(test)]
mod tests {
    use tls::ClientFiles;

    use super::*;

    /// Linux ends an idle connection at the first probe after `tcp_user_timeout`, other systems after the last probe.
    #[test]
    fn an_idle_connection_to_a_silent_host_ends_within_twenty_seconds() {
        let text = "postgres://u@10.0.0.1/d?keepalives_interval=60&keepalives_retries=9&tcp_user_timeout=900";
        let settings = settings(&Address::parse(text, &ClientFiles::default()).unwrap(), "test").unwrap();
        let interval = settings.get_keepalives_interval().expect("without one, the system's is 75 s");
        let probes = settings.get_keepalives_retries().unwrap();
        assert!(settings.get_keepalives());
        assert!(settings.get_keepalives_idle() + interval * probes <= Duration::from_secs(20));
        assert_eq!(settings.get_tcp_user_timeout(), Some(&Duration::from_secs(20)));
    }
}
