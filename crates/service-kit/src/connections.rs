//! Makes the ledger, its keys and the broker as the settings say.

use std::time::Duration;

use broker::{Backoff, Broker, BrokerConfig, BrokerError, Names, Publisher};
use domain::error_chain;
use ledger::{Ledger, LedgerConfig, LedgerError, SecretKeys};
use tls::Role;
use tokio_util::sync::CancellationToken;
use traces::{CollectorHeaders, EgressError, Traces, TracesConfig};

use crate::{
    Readiness,
    settings::{Key, Sensitive, SessionBackEnd, Settings, SettingsError},
    start_error::{SchemaTooOld, StartError},
};

/// The ledger. Nothing is connected yet. Call it inside the runtime that runs the process to its end.
///
/// # Errors
/// [`SettingsError`] for `database.url`, `database.password_file` or a file of TLS.
pub fn ledger(settings: &Settings, process: &'static str) -> Result<Ledger, SettingsError> {
    ledger_with(settings, process, settings.database.max_connections)
}

/// The same with `max_connections` of the connections that the process may hold.
///
/// # Errors
/// [`SettingsError`] for `database.url`, `database.password_file` or a file of TLS.
pub fn ledger_with(
    settings: &Settings,
    process: &'static str,
    max_connections: usize,
) -> Result<Ledger, SettingsError> {
    let config = LedgerConfig {
        url: settings.database.url.expose().to_owned(),
        password_file: settings.database.password_file.clone(),
        tls: settings.database.tls_files()?,
        max_connections,
        application_name: process,
        call_timeout: ledger::CALL_TIMEOUT,
    };
    Ledger::new(&config).map_err(invalid_database)
}

/// The same ledger with connections of its own. A call may hold one of them for as long as `patience`.
///
/// # Errors
/// As [`ledger_with`].
pub fn part_of_ledger(ledger: &Ledger, connections: usize, patience: Duration) -> Result<Ledger, SettingsError> {
    ledger.with_pool(connections, patience).map_err(invalid_database)
}

fn invalid_database(error: LedgerError) -> SettingsError {
    match error {
        LedgerError::TwoPasswords => two_passwords("database"),
        LedgerError::PasswordFile(error) => SettingsError::invalid(&file_setting("database", error.role), error),
        LedgerError::TlsFile(error) => SettingsError::invalid(&file_setting("database", error.role), error),
        LedgerError::TlsTwice { setting, option } => {
            let reason = format!("is set, and database.url says {option}: remove it from there");
            SettingsError::invalid(&file_setting("database", setting), reason)
        }
        error => SettingsError::invalid("database.url", error),
    }
}

fn two_passwords(section: &str) -> SettingsError {
    let reason = format!("is set, and {section}.url holds a password: remove it from there");
    SettingsError::invalid(&format!("{section}.password_file"), reason)
}

/// The keys that seal signing secrets.
///
/// # Errors
/// [`SettingsError`] for `secrets.keys`.
pub fn secret_keys(settings: &Settings) -> Result<SecretKeys, SettingsError> {
    settings.secret_keys()?.parse().map_err(|error| SettingsError::invalid("secrets.keys", error))
}

/// The broker, with the topology that the settings ask for. Nothing is connected yet.
///
/// # Errors
/// [`SettingsError`] for `broker.url`, `broker.password_file` or a file of TLS.
pub fn broker(settings: &Settings, process: &'static str) -> Result<Broker, SettingsError> {
    let config = BrokerConfig {
        uri: settings.broker.url.expose().to_owned(),
        password_file: settings.broker.password_file.clone(),
        tls: settings.broker.tls_files()?,
        names: Names::new(&settings.broker.prefix, &settings.broker.events_exchange),
        gaps: settings.retry.schedule.gaps(),
        confirm_timeout: settings.broker.confirm_timeout,
        process,
    };
    Broker::new(&config).map_err(|error| match error {
        BrokerError::TwoPasswords => two_passwords("broker"),
        BrokerError::File(error) => SettingsError::invalid(&file_setting("broker", error.role), error),
        BrokerError::NoTls => {
            let role = if config.tls.authorities.is_some() { Role::Authorities } else { Role::Certificate };
            let reason = "is set, but no address in broker.url begins with amqps://";
            SettingsError::invalid(&file_setting("broker", role), reason)
        }
        error => SettingsError::invalid("broker.url", error),
    })
}

fn file_setting(section: &str, role: Role) -> String {
    let key = match role {
        Role::Authorities => "ca_file",
        Role::Certificate => "client_certificate",
        Role::Key => "client_key",
        Role::Password => "password_file",
    };
    format!("{section}.{key}")
}

/// What to tell an operator of a ledger that is not on this machine and reached without TLS.
pub fn unencrypted_ledger(ledger: &Ledger) -> Option<String> {
    let setting = Key::new("database.url");
    let hosts = hosts(&ledger.in_the_clear())?;
    let advice = "add sslmode=verify-full, or set database.ca_file";
    Some(format!("{setting}: the connection to {hosts} is not encrypted: {advice}"))
}

/// The same of a broker.
pub fn unencrypted_broker(broker: &Broker) -> Option<String> {
    let setting = Key::new("broker.url");
    let hosts = hosts(&broker.in_the_clear())?;
    Some(format!("{setting}: the connection to {hosts} is not encrypted: use amqps://"))
}

fn hosts(hosts: &[String]) -> Option<String> {
    (!hosts.is_empty()).then(|| hosts.join(", "))
}

/// Traces: off, if the settings do not want them. Nothing is connected yet.
///
/// # Errors
/// [`SettingsError`] for a setting of `traces`, or for `egress.extra_ca_file`.
pub fn traces(settings: &Settings, process: &'static str) -> Result<Traces, SettingsError> {
    let wanted = &settings.traces;
    let Some(endpoint) = &wanted.endpoint else { return Ok(Traces::default()) };
    let headers = CollectorHeaders::parse(wanted.headers.as_ref().map_or("", Sensitive::expose));
    let config = TracesConfig {
        endpoint: endpoint.to_string(),
        headers: headers.map_err(|error| SettingsError::invalid("traces.headers", error))?,
        timeout: wanted.timeout,
        ratio: wanted.sample_ratio,
        extra_ca_pem: settings.egress.extra_ca_pem()?,
        service: process,
        version: env!("CARGO_PKG_VERSION"),
    };
    Traces::new(config).map_err(|error| match error {
        EgressError::Url => SettingsError::invalid("traces.endpoint", error),
        error => SettingsError::invalid("egress.extra_ca_file", error),
    })
}

/// Returns a warning for each setting of a URL that leads to another machine without TLS.
pub fn unencrypted_urls(settings: &Settings) -> impl Iterator<Item = String> {
    let Settings { api, broker, traces, .. } = settings;
    let asks = api.sessions == SessionBackEnd::Introspection;
    let urls = [
        ("traces.endpoint", &traces.endpoint),
        ("api.introspection_url", if asks { &api.introspection_url } else { &None }),
        ("broker.management_url", &broker.management_url),
    ];
    urls.into_iter().filter_map(|(setting, url)| {
        let url = url.as_ref().filter(|url| url.scheme() == "http")?;
        let (setting, host) = (Key::new(setting), url.host_str()?.trim_matches(['[', ']']));
        let warning = || format!("{setting}: the connection to {host} is not encrypted: use https://");
        (!tls::is_this_machine(host)).then(warning)
    })
}

/// Waits until the database answers, and checks its schema. Returns without an error when the shutdown comes first.
///
/// # Errors
/// [`StartError`], immediately: waiting does not help.
pub(crate) async fn wait_for_schema(ledger: &Ledger, shutdown: &CancellationToken) -> Result<(), StartError> {
    let mut backoff = Backoff::default();
    loop {
        match ledger.migrations_missing().await {
            Ok(missing) if missing.is_empty() => return Ok(()),
            Ok(missing) => return Err(SchemaTooOld { missing }.into()),
            Err(error @ (LedgerError::SharedSession | LedgerError::OtherBaseline)) => {
                return Err(invalid_database(error).into());
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(
                    error,
                    "database.url (WEBHOOKS__DATABASE__URL): the database does not answer; trying again"
                );
            }
        }
        if shutdown.run_until_cancelled(backoff.pause()).await.is_none() {
            return Ok(());
        }
    }
}

/// Adds the checks of every service: `database` and `broker`.
pub(crate) fn checked(readiness: Readiness, ledger: &Ledger, publisher: &Publisher) -> Readiness {
    let (ledger, publisher) = (ledger.clone(), publisher.clone());
    readiness
        .check("database", move || {
            let ledger = ledger.clone();
            async move { ledger.clock().await.map(drop).map_err(|error| database_fault(&error)) }
        })
        .check("broker", move || std::future::ready(publisher.check()))
}

fn database_fault(error: &LedgerError) -> String {
    match error {
        LedgerError::ReadOnly => "read-only".to_owned(),
        error => error.to_string(),
    }
}
