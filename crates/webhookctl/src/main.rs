#![doc = include_str!("../README.md")]
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: use `output`")]

mod arguments;
mod away;
mod body;
mod brake;
mod confirm;
mod connect;
mod dead;
mod doctor;
mod health;
mod keys;
mod listen;
mod output;
mod publish;
mod recover;
mod rejected;
mod session;
mod tenant;
mod top;

use std::time::Duration;

use clap::{Parser, Subcommand};
use domain::TenantId;
use service_kit::{Settings, SettingsError, connections, process};

use self::arguments::{Misuse, ttl};

const PROCESS: &str = "webhookctl";
/// The exit code for unusable settings and arguments, as clap has it.
const UNUSABLE: i32 = 2;
/// The exit code that a shell reports for a process whose output nobody reads any more.
const UNREAD: i32 = 141;

/// The command line of the webhook service, for operators and developers.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Applies the missing migrations and makes partitions ahead of time.
    Migrate,
    /// Admin sessions of the `database` back end.
    #[command(subcommand)]
    Session(Session),
    /// Events that could not be used, and events with an unknown routing key.
    #[command(subcommand)]
    Rejected(Parked),
    /// Dead jobs: unreadable ones, those of unknown deliveries, and those that crashed dispatchers.
    #[command(subcommand)]
    Dead(Parked),
    /// The keys that seal signing secrets (`secrets.keys`).
    #[command(subcommand)]
    Keys(Keys),
    /// A tenant that leaves: first `stop`, then `erase`.
    #[command(subcommand)]
    Tenant(tenant::Command),
    Brake(brake::Arguments),
    Doctor(doctor::Arguments),
    Health(health::Arguments),
    Listen(listen::Arguments),
    Publish(publish::Arguments),
    Recover(recover::Arguments),
    Top(top::Arguments),
}

#[derive(Subcommand)]
enum Session {
    /// Creates a session and prints its id.
    Create {
        /// The tenant that the session may manage: a UUID.
        #[arg(long)]
        tenant: TenantId,
        /// How long the session lasts, such as 30m or 12h.
        #[arg(long, default_value = "12h", value_parser = ttl)]
        ttl: Duration,
        /// The user who is logged in.
        #[arg(long, default_value = PROCESS)]
        user: String,
        /// The user's role. Only `admin` may manage webhooks.
        #[arg(long, default_value = "admin")]
        role: String,
    },
    /// Prints a link that logs an administrator in to the console, once. For development: elsewhere the business
    /// application logs in (`console.login_url`).
    Link {
        /// The tenant that the session may manage: a UUID.
        #[arg(long)]
        tenant: TenantId,
        /// How long the link can be used, such as 30m or 12h.
        #[arg(long, default_value = "5m", value_parser = ttl)]
        ttl: Duration,
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

#[derive(Subcommand)]
enum Keys {
    /// Shows how many secrets each key seals, whether it is configured or not.
    List,
    /// Reseals with the first key what other configured keys seal, so that they can be retired. Services can stay up.
    Reseal,
}

#[derive(Subcommand)]
enum Parked {
    /// Shows the messages, one JSON object a line, oldest first. They stay where they are.
    List {
        /// The most messages to show. A dead one may hold several jobs, and each job has its own line.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Deletes the messages for good, oldest first. Use it when no repair would make them usable.
    Discard {
        /// The most messages to delete. Without it, all that are there at the start.
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Publishes the messages again, oldest first: events to ingest, jobs to the dispatchers.
    Requeue {
        /// The most messages to publish again. Without it, all that are there at the start.
        #[arg(long)]
        limit: Option<usize>,
    },
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let code = match run(arguments.command).await {
        Ok(is_well) => i32::from(!is_well),
        Err(error) if output::is_gone(&error) => UNREAD,
        Err(error) => {
            output::error(process::line(PROCESS, error.as_ref()));
            if error.is::<SettingsError>() || error.is::<Misuse>() { UNUSABLE } else { 1 }
        }
    };
    // Does not drop the runtime: that would end the background work of a broker connection, which prints errors then.
    #[expect(clippy::disallowed_methods, reason = "the end of the runtime would wait for the broker connection")]
    std::process::exit(code);
}

/// Returns whether all is well. Only the doctor and the health check find that it is not without failing themselves.
async fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Doctor(arguments) => doctor::run(arguments).await,
        Command::Health(arguments) => health::run(arguments).await,
        Command::Listen(arguments) => listen::run(Settings::load(), arguments).await.map(|()| true),
        command => act(command, &Settings::load()?).await.map(|()| true),
    }
}

async fn act(command: Command, settings: &Settings) -> anyhow::Result<()> {
    match command {
        // They run above: the doctor tells what is wrong with the settings, and the others may do without them.
        Command::Doctor(_) | Command::Health(_) | Command::Listen(_) => Ok(()),
        Command::Migrate => migrate(settings).await,
        Command::Session(Session::Create { tenant, ttl, user, role }) => {
            let session = ledger::Session { tenant, user, role };
            session::create(&connect::ledger(settings)?, session, ttl).await
        }
        Command::Session(Session::Link { tenant, ttl, user }) => session::link(settings, tenant, user, ttl).await,
        Command::Session(Session::Revoke { id }) => {
            session::revoke(&connect::ledger(settings)?, session::id_from(id)?).await
        }
        Command::Rejected(Parked::List { limit }) => rejected::list(&connect::broker(settings)?, limit).await,
        Command::Rejected(Parked::Requeue { limit }) => rejected::requeue(&connect::broker(settings)?, limit).await,
        Command::Rejected(Parked::Discard { limit }) => rejected::discard(&connect::broker(settings)?, limit).await,
        Command::Dead(Parked::Discard { limit }) => {
            let ledger = connect::ledger(settings)?;
            dead::discard(&connect::broker(settings)?, &ledger, limit).await
        }
        Command::Dead(Parked::List { limit }) => dead::list(&connect::broker(settings)?, limit).await,
        Command::Dead(Parked::Requeue { limit }) => {
            let ledger = connect::ledger(settings)?;
            dead::requeue(&connect::broker(settings)?, &ledger, limit).await
        }
        Command::Brake(arguments) => brake::run(settings, arguments).await,
        Command::Publish(arguments) => publish::run(settings, arguments).await,
        Command::Recover(arguments) => recover::run(settings, arguments).await,
        Command::Top(arguments) => top::run(settings, arguments).await,
        Command::Tenant(command) => tenant::run(&connect::ledger(settings)?, command).await,
        Command::Keys(command) => {
            let (ledger, configured) = (connect::ledger(settings)?, connections::secret_keys(settings)?);
            match command {
                Keys::List => keys::list(&ledger, &configured).await,
                Keys::Reseal => keys::reseal(&ledger, &configured).await,
            }
        }
    }
}

async fn migrate(settings: &Settings) -> anyhow::Result<()> {
    let ledger = connect::ledger(settings)?;
    let applied = away::database(ledger.migrate().await)?;
    match applied.len() {
        0 => output::line("the schema is current"),
        count => output::line(format_args!("applied {count} migration(s): {}", applied.join(", "))),
    }
}
