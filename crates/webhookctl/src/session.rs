//! `webhookctl session`.

use std::{io, time::Duration};

use anyhow::{Context, anyhow, ensure};
use ledger::{Ledger, NewSession, SchemaState, Session, SessionHash};
use ring::rand::{SecureRandom, SystemRandom};
use service_kit::connections::SchemaTooOld;
use time::OffsetDateTime;

use crate::away;

/// Creates a session and prints only its id: 256 random bits in hexadecimal. The ledger gets only the id's hash.
pub(crate) async fn create(ledger: &Ledger, session: Session, ttl: Duration) -> anyhow::Result<()> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).map_err(|_| anyhow!("the system has no randomness"))?;
    let id = hex::encode(random);
    let ttl = time::Duration::try_from(ttl).ok();
    let expires_at = ttl.and_then(|ttl| OffsetDateTime::now_utc().checked_add(ttl)).context("--ttl: too long")?;
    if let SchemaState::Behind(missing) = away::database(ledger.schema_check().await)? {
        return Err(SchemaTooOld { missing }.into());
    }
    away::database(ledger.session_create(&NewSession { hash: SessionHash::of(&id), session, expires_at }).await)?;
    println!("{id}");
    Ok(())
}

/// Revokes a session. An unknown id is an error, so that a misspelt one is noticed.
pub(crate) async fn revoke(ledger: &Ledger, id: String) -> anyhow::Result<()> {
    let revoked = away::database(ledger.session_revoke(&SessionHash::of(&id)).await)?;
    ensure!(revoked, "there is no such session");
    println!("the session is revoked");
    Ok(())
}

/// The given id, or for `-` the first line of standard input.
pub(crate) fn id_from(argument: String) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("standard input cannot be read")?;
    let id = line.trim();
    ensure!(!id.is_empty(), "standard input holds no session id");
    Ok(id.to_owned())
}
