//! `webhookctl session`.

use std::time::Duration;

use anyhow::{Context, anyhow};
use ledger::{Ledger, NewSession, Session, SessionHash};
use ring::rand::{SecureRandom, SystemRandom};
use time::OffsetDateTime;

/// Creates a session and prints its id alone: 256 random bits in hexadecimal. The ledger gets only its hash.
pub(crate) async fn create(ledger: &Ledger, session: Session, ttl: Duration) -> anyhow::Result<()> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).map_err(|_| anyhow!("the system has no randomness"))?;
    let id = hex::encode(random);
    let expires_at = OffsetDateTime::now_utc().checked_add(ttl.try_into()?).context("--ttl: too long")?;
    ledger.session_create(&NewSession { hash: SessionHash::of(&id), session, expires_at }).await?;
    println!("{id}");
    Ok(())
}
