#![doc = include_str!("../README.md")]
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: use `output`")]

mod arguments;
mod brake;
mod confirm;
mod connect;
mod dead;
mod doctor;
mod health;
mod key;
mod keys;
mod listen;
mod migrate;
mod output;
mod parked;
mod publish;
mod recover;
mod rejected;
mod server_error;
mod session;
mod steps;
mod tenant;
mod top;

use clap::{Parser, Subcommand};
use domain::error_chain;
use service_kit::{Settings, SettingsError};

use self::arguments::Misuse;

const PROCESS: &str = "webhookctl";
/// The exit code for unusable settings and arguments, as clap has it.
const EXIT_UNUSABLE: i32 = 2;
/// The exit code that a shell reports for a process whose output nobody reads any more.
const EXIT_UNREAD: i32 = 141;

/// The command line of the webhook service, for operators and developers.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Migrate(migrate::Arguments),
    /// Admin sessions of the `database` back end.
    #[command(subcommand)]
    Session(session::Command),
    /// Keys by which programs call the API for a tenant.
    #[command(subcommand)]
    Key(key::Command),
    Rejected(rejected::Arguments),
    /// Dead jobs: unreadable ones, those of unknown deliveries, and those that crashed dispatchers.
    #[command(subcommand)]
    Dead(parked::Command),
    /// The keys that seal signing secrets (`secrets.keys`).
    #[command(subcommand)]
    Keys(keys::Command),
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

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let code = match run(arguments.command).await {
        Ok(is_well) => i32::from(!is_well),
        Err(error) if output::is_gone(&error) => EXIT_UNREAD,
        Err(error) => {
            output::error(format_args!("{PROCESS}: {}", error_chain(error.as_ref())));
            if error.is::<SettingsError>() || error.is::<Misuse>() { EXIT_UNUSABLE } else { 1 }
        }
    };
    // Does not drop the runtime: that would end the background work of a broker connection, which prints errors then.
    #[expect(clippy::disallowed_methods, reason = "the end of the runtime would wait for the broker connection")]
    std::process::exit(code);
}

/// Returns whether all is well. Only the doctor and the health check find that it is not without failing themselves.
async fn run(command: Command) -> anyhow::Result<bool> {
    let settings = Settings::load();
    match command {
        // The doctor says what is wrong with the settings, and the health check needs none.
        Command::Doctor(arguments) => return doctor::run(arguments).await,
        Command::Health(arguments) => return health::run(arguments).await,
        Command::Listen(arguments) => listen::run(settings, arguments).await?,
        Command::Migrate(arguments) => migrate::run(&settings?, &arguments).await?,
        Command::Session(command) => session::run(&settings?, command).await?,
        Command::Key(command) => key::run(&settings?, command).await?,
        Command::Rejected(arguments) => rejected::run(&settings?, arguments).await?,
        Command::Dead(command) => dead::run(&settings?, command).await?,
        Command::Brake(arguments) => brake::run(&settings?, arguments).await?,
        Command::Publish(arguments) => publish::run(&settings?, arguments).await?,
        Command::Recover(arguments) => recover::run(&settings?, arguments).await?,
        Command::Top(arguments) => top::run(&settings?, arguments).await?,
        Command::Tenant(command) => tenant::run(&settings?, command).await?,
        Command::Keys(command) => keys::run(&settings?, command).await?,
    }
    Ok(true)
}
