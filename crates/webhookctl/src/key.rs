//! `webhookctl key`.

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use domain::{KeyId, TenantId, find_hidden, is_blank};
use ledger::{Actor, ApiKey, CredentialHash, NewApiKey, Page};
use service_kit::Settings;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    arguments::{Misuse, expiry},
    connect, output, server_error,
};

/// The maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 255;

/// Keys of programs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Creates a key and prints it. It cannot be shown again.
    Create {
        #[command(flatten)]
        whose: Whose,
        /// The key's name, for people: which program uses it.
        #[arg(long)]
        name: String,
        /// The time for which the key can be used, such as 90d. Without it, the key does not expire.
        #[arg(long = "ttl", value_name = "TTL", value_parser = expiry)]
        expires_at: Option<OffsetDateTime>,
    },
    /// Lists a tenant's keys: id, name, creation, expiry and the latest day of a use.
    List {
        /// The tenant: a UUID.
        #[arg(long)]
        tenant: TenantId,
    },
    /// Revokes a key, or all keys of a tenant. From then on the API refuses them.
    Revoke {
        #[command(flatten)]
        whose: Whose,
        /// The key's id, as the list shows it.
        #[arg(required_unless_present = "all")]
        id: Option<KeyId>,
        /// Revokes all keys of the tenant, as when it is suspended.
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
}

/// A tenant, and who acts for it.
#[derive(Args)]
pub(crate) struct Whose {
    /// The tenant: a UUID.
    #[arg(long)]
    tenant: TenantId,
    /// The user who does it, for the notice.
    #[arg(long, default_value = "operator")]
    user: String,
}

impl From<Whose> for Actor {
    fn from(Whose { tenant, user }: Whose) -> Self {
        Self { tenant, user }
    }
}

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    let ledger = connect::ledger(settings)?;
    connect::require_schema(&ledger).await?;
    match command {
        // Prints only the key.
        Command::Create { whose, name, expires_at } => {
            let is_good = !is_blank(&name) && !name.chars().any(char::is_control) && find_hidden(&name).is_none();
            let is_good = is_good && name.chars().count() <= MAX_NAME_CHARS;
            ensure!(is_good, Misuse("the name is blank or too long, or has characters that cannot be seen".to_owned()));
            let key = ApiKey::generate()?;
            let id = KeyId::from(Uuid::now_v7());
            let new = NewApiKey { id, name, expires_at, hash: CredentialHash::of(&key) };
            match server_error::database(ledger.key_create(&whose.into(), &new).await)? {
                Ok(_) => output::line(key),
                Err(_) => {
                    bail!("the tenant has {} keys, the maximum: revoke one first", ApiKey::MAX_PER_TENANT)
                }
            }
        }
        Command::List { tenant } => {
            let page = Page { after: None, limit: u16::MAX };
            let keys = server_error::database(ledger.key_list(tenant, page).await)?;
            output::line("ID                                    CREATED     EXPIRES     LAST USED   NAME")?;
            keys.iter().try_for_each(|key| output::line(row(key)))
        }
        Command::Revoke { whose, id: Some(id), .. } => {
            let revoked = server_error::database(ledger.key_revoke(&whose.into(), id).await)?;
            ensure!(revoked.is_some(), "the tenant has no such key");
            output::line("the key is revoked")
        }
        Command::Revoke { whose, .. } => {
            let revoked = server_error::database(ledger.keys_revoke(&whose.into()).await)?;
            output::line(format_args!("{revoked} key(s) are revoked"))
        }
    }
}

/// A line of the list. Days are in UTC.
fn row(key: &ApiKey) -> String {
    let day = |time: OffsetDateTime| time.to_offset(time::UtcOffset::UTC).date().to_string();
    let (created, expires) = (day(key.created_at), key.expires_at.map_or("never".to_owned(), day));
    let used = key.last_used_on.map_or("never".to_owned(), |day| day.to_string());
    format!("{}  {created:10}  {expires:10}  {used:10}  {}", key.id, key.name)
}
