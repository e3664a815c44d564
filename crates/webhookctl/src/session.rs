//! `webhookctl session`.

use anyhow::ensure;
use clap::Subcommand;
use domain::TenantId;
use ledger::{CredentialHash, Ledger, NewSession, Session};
use service_kit::{
    Settings, SettingsError,
    settings::{Console, SessionBackEnd},
};
use time::OffsetDateTime;

use crate::{
    PROCESS,
    arguments::{Misuse, expiry, stdin},
    connect, output, server_error,
};

/// Admin sessions.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Creates a session and prints its id.
    Create {
        /// The tenant that the session may manage: a UUID.
        #[arg(long)]
        tenant: TenantId,
        /// How long the session lasts, such as 30m or 12h.
        #[arg(long = "ttl", value_name = "TTL", default_value = "12h", value_parser = expiry)]
        expires_at: OffsetDateTime,
        /// The user who is logged in.
        #[arg(long, default_value = PROCESS)]
        user: String,
        /// The user's role. A session of any other role could do nothing.
        #[arg(long, default_value = Session::ADMIN, value_parser = [Session::ADMIN])]
        role: String,
    },
    /// Prints a link that logs an administrator in to the console, once. For development: elsewhere the business
    /// application logs in (`console.login_url`).
    Link {
        /// The tenant that the session may manage: a UUID.
        #[arg(long)]
        tenant: TenantId,
        /// How long the link can be used, such as 30m or 12h.
        #[arg(long = "ttl", value_name = "TTL", default_value = "5m", value_parser = expiry)]
        expires_at: OffsetDateTime,
        /// The user who is logged in.
        #[arg(long, default_value = PROCESS)]
        user: String,
    },
    /// Revokes a session. From then on it is not logged in.
    Revoke {
        /// The session's id, or `-` to read it from standard input, which keeps it out of the shell's history.
        id: String,
    },
}

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    match command {
        // Prints only the id: 256 random bits in hexadecimal. The ledger gets only the id's hash.
        Command::Create { tenant, expires_at, user, role } => {
            output::line(stored(&connect::ledger(settings)?, Session { tenant, user, role }, expires_at).await?)
        }
        Command::Link { tenant, expires_at, user } => link(settings, tenant, user, expires_at).await,
        // An unknown id is an error, so that a misspelt one is noticed.
        Command::Revoke { id } => {
            let ledger = connect::ledger(settings)?;
            let id = if id == "-" { stdin()? } else { id };
            let id = id.trim();
            ensure!(!id.is_empty(), Misuse("the session id is empty".to_owned()));
            let revoked = server_error::database(ledger.session_revoke(&CredentialHash::of(id)).await)?;
            ensure!(revoked, "there is no such session");
            output::line("the session is revoked")
        }
    }
}

/// Prints a link that logs an administrator in to the console, once.
async fn link(settings: &Settings, tenant: TenantId, user: String, expires_at: OffsetDateTime) -> anyhow::Result<()> {
    let Console { enabled, login_url, public_url } = &settings.console;
    ensure!(*enabled, SettingsError::invalid("console.enabled", "is false: there is no console"));
    let logs_in = "is set: the business application logs in";
    ensure!(login_url.is_none(), SettingsError::invalid("console.login_url", logs_in));
    require_database(settings)?;
    let ledger = connect::ledger(settings)?;
    let code = stored(&ledger, Session { tenant, user, role: Session::LOGIN_CODE.to_owned() }, expires_at).await?;
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
pub(crate) async fn stored(ledger: &Ledger, session: Session, expires_at: OffsetDateTime) -> anyhow::Result<String> {
    connect::require_schema(ledger).await?;
    let (id, new) = NewSession::begin(session, expires_at)?;
    server_error::database(ledger.session_create(&new).await)?;
    Ok(id)
}
