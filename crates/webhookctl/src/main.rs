#![doc = include_str!("../README.md")]

mod away;
mod body;
mod dead;
mod keys;
mod rejected;
mod session;

use std::time::Duration;

use clap::{Parser, Subcommand};
use domain::TenantId;
use service_kit::{Settings, SettingsError, connections, process};

const PROCESS: &str = "webhookctl";
/// Settings that cannot be used; clap ends with the same for arguments.
const UNUSABLE: i32 = 2;

/// The operators' command line of the webhook service.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Applies the migrations that are missing, and makes partitions ahead of time.
    Migrate,
    /// Admin sessions of the `database` back end.
    #[command(subcommand)]
    Session(Session),
    /// Events that could not be used.
    #[command(subcommand)]
    Rejected(Parked),
    /// Jobs that could not be done: no jobs at all, or such that crashed their dispatchers.
    #[command(subcommand)]
    Dead(Parked),
    /// The keys that seal signing secrets (`secrets.keys`).
    #[command(subcommand)]
    Keys(Keys),
}

#[derive(Subcommand)]
enum Session {
    /// Creates a session and prints its id.
    Create {
        /// The tenant that the session may manage: a UUID.
        #[arg(long)]
        tenant: TenantId,
        /// How long it lasts, such as 30m or 12h.
        #[arg(long, default_value = "12h", value_parser = ttl)]
        ttl: Duration,
        /// Who is logged in.
        #[arg(long, default_value = PROCESS)]
        user: String,
        /// The user's role; only `admin` may manage webhooks.
        #[arg(long, default_value = "admin")]
        role: String,
    },
    /// Revokes a session: from then on it is not logged in.
    Revoke {
        /// The session's id, or `-` to read it from standard input, where no shell's history keeps it.
        id: String,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Shows how many secrets each key seals, whether it is configured or not.
    List,
    /// Seals with the first key what other configured keys seal, so that they can be retired. Services may run meanwhile.
    Reseal,
}

#[derive(Subcommand)]
enum Parked {
    /// Shows them, one JSON object a line, oldest first. They stay where they are.
    List {
        /// The most messages to show: a dead one may hold several jobs, each of which has its line.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Forgets them for good, oldest first: what no cause's mending would make usable.
    Discard {
        /// The most messages to forget; all that are there now if not given.
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Hands them over again, oldest first: events to ingest, jobs to the dispatchers.
    Requeue {
        /// The most messages to hand over; all that are there now if not given.
        #[arg(long)]
        limit: Option<usize>,
    },
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let code = match run(arguments.command).await {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}", process::line(PROCESS, error.as_ref()));
            if error.is::<SettingsError>() { UNUSABLE } else { 1 }
        }
    };
    // With the runtime would end what a connection to the broker still does in the background, and not in silence.
    std::process::exit(code);
}

fn ttl(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("a session lasts longer than zero".to_owned()),
        Ok(ttl) => Ok(ttl),
        Err(error) => Err(error.to_string()),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    let settings = Settings::load()?;
    match command {
        Command::Migrate => migrate(&settings).await,
        Command::Session(Session::Create { tenant, ttl, user, role }) => {
            let session = ledger::Session { tenant, user, role };
            session::create(&connections::ledger(&settings, PROCESS)?, session, ttl).await
        }
        Command::Session(Session::Revoke { id }) => {
            session::revoke(&connections::ledger(&settings, PROCESS)?, session::id_from(id)?).await
        }
        Command::Rejected(Parked::List { limit }) => {
            rejected::list(&connections::broker(&settings, PROCESS)?, limit).await
        }
        Command::Rejected(Parked::Requeue { limit }) => {
            rejected::requeue(&connections::broker(&settings, PROCESS)?, limit).await
        }
        Command::Rejected(Parked::Discard { limit }) => {
            rejected::discard(&connections::broker(&settings, PROCESS)?, limit).await
        }
        Command::Dead(Parked::Discard { limit }) => {
            let ledger = connections::ledger(&settings, PROCESS)?;
            dead::discard(&connections::broker(&settings, PROCESS)?, &ledger, limit).await
        }
        Command::Dead(Parked::List { limit }) => dead::list(&connections::broker(&settings, PROCESS)?, limit).await,
        Command::Dead(Parked::Requeue { limit }) => {
            let ledger = connections::ledger(&settings, PROCESS)?;
            dead::requeue(&connections::broker(&settings, PROCESS)?, &ledger, limit).await
        }
        Command::Keys(command) => {
            let (ledger, configured) = (connections::ledger(&settings, PROCESS)?, connections::secret_keys(&settings)?);
            match command {
                Keys::List => keys::list(&ledger, &configured).await,
                Keys::Reseal => keys::reseal(&ledger, &configured).await,
            }
        }
    }
}

async fn migrate(settings: &Settings) -> anyhow::Result<()> {
    let ledger = connections::ledger(settings, PROCESS)?;
    let applied = away::database(ledger.migrate().await)?;
    match applied.len() {
        0 => println!("the schema is current"),
        count => println!("applied {count} migration(s): {}", applied.join(", ")),
    }
    Ok(())
}
