//! `webhookctl session`.

use std::time::Duration;

use anyhow::{Context, anyhow};
use ledger::{Ledger, NewSession, SchemaState, Session, SessionHash};
use ring::rand::{SecureRandom, SystemRandom};
use service_kit::connections::SchemaTooOld;
use time::OffsetDateTime;

use crate::away;

/// Creates a session and prints its id alone: 256 random bits in hexadecimal. The ledger gets only its hash.
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
