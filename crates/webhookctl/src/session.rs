//! `webhookctl session`.

use std::{io, time::Duration};

use anyhow::{Context, ensure};
use domain::TenantId;
use ledger::{Ledger, NewSession, Session, SessionHash};
use service_kit::{
    Settings, SettingsError,
    settings::{Console, SessionBackEnd},
};

use crate::{
    arguments::{Misuse, expiry},
    away, connect, output,
};

/// Creates a session and prints only its id: 256 random bits in hexadecimal. The ledger gets only the id's hash.
pub(crate) async fn create(ledger: &Ledger, session: Session, ttl: Duration) -> anyhow::Result<()> {
    output::line(stored(ledger, session, ttl).await?)
}

/// Prints a link that logs an administrator in to the console, once.
pub(crate) async fn link(settings: &Settings, tenant: TenantId, user: String, ttl: Duration) -> anyhow::Result<()> {
    let Console { enabled, login_url, public_url } = &settings.console;
    ensure!(*enabled, SettingsError::invalid("console.enabled", "is false: there is no console"));
    let logs_in = "is set: the business application logs in";
    ensure!(login_url.is_none(), SettingsError::invalid("console.login_url", logs_in));
    require_database(settings)?;
    let ledger = connect::ledger(settings)?;
    let code = stored(&ledger, Session { tenant, user, role: Session::LOGIN_CODE.to_owned() }, ttl).await?;
    let base = public_url.as_ref().map_or_else(|| format!("http://{}", settings.api.listen), ToString::to_string);
    output::line(format_args!("{}/console/login/?code={code}", base.trim_end_matches('/')))
}

/// Fails where sessions are not in the database.
pub(crate) fn require_database(settings: &Settings) -> Result<(), SettingsError> {
    let makes = "is introspection: only the business application can make sessions";
    match settings.api.sessions {
        SessionBackEnd::Database => Ok(()),
        SessionBackEnd::Introspection => Err(SettingsError::invalid("api.sessions", makes)),
    }
}

/// Stores a session, and returns its id.
pub(crate) async fn stored(ledger: &Ledger, session: Session, ttl: Duration) -> anyhow::Result<String> {
    let expires_at = expiry(ttl).context("the session would never end")?;
    connect::require_schema(ledger).await?;
    let (id, new) = NewSession::begin(session, expires_at)?;
    away::database(ledger.session_create(&new).await)?;
    Ok(id)
}

/// Revokes a session. An unknown id is an error, so that a misspelt one is noticed.
pub(crate) async fn revoke(ledger: &Ledger, id: String) -> anyhow::Result<()> {
    let revoked = away::database(ledger.session_revoke(&SessionHash::of(&id)).await)?;
    ensure!(revoked, "there is no such session");
    output::line("the session is revoked")
}

/// The given id, or for `-` the first line of standard input.
pub(crate) fn id_from(argument: String) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("standard input cannot be read")?;
    let id = line.trim();
    ensure!(!id.is_empty(), Misuse("standard input holds no session id".to_owned()));
    Ok(id.to_owned())
}
