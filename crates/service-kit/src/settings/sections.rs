//! The sections and their keys. The defaults are in `defaults.toml`, beside this file.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use domain::{AddressPolicy, HostSuffixes, Ports, RetrySchedule, WebhookUrl};
use ipnet::IpNet;
use ledger::RetentionTimes;
use serde::Deserialize;
use tls::{ClientFiles, IdentityFiles};
use url::Url;

use super::{Sensitive, SettingsError, parse};

/// `database`: PostgreSQL, the ledger.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Where it is, with credentials.
    pub url: Sensitive,
    /// A file that holds the password, which `url` then leaves out. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// A PEM file of the authorities that are trusted instead of the public ones. With it, connections are encrypted.
    pub ca_file: Option<PathBuf>,
    /// A PEM file of our certificate, for a server that asks for one. With it, connections are encrypted.
    pub client_certificate: Option<PathBuf>,
    /// A PEM file of its key.
    pub client_key: Option<PathBuf>,
    /// Connections that one process may hold, at least 1.
    #[serde(deserialize_with = "parse::count")]
    pub max_connections: usize,
}

impl Database {
    /// The files that connections over TLS use.
    ///
    /// # Errors
    /// [`SettingsError::Missing`] for a certificate without its key, or the other way around.
    pub fn tls_files(&self) -> Result<ClientFiles, SettingsError> {
        tls_files("database", &self.ca_file, &self.client_certificate, &self.client_key)
    }
}

/// `broker`: RabbitMQ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// Where it is, with credentials.
    pub url: Sensitive,
    /// A file that holds the password, which `url` then leaves out. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// A PEM file of the authorities that `amqps` trusts instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// A PEM file of our certificate, for a broker that asks for one.
    pub client_certificate: Option<PathBuf>,
    /// A PEM file of its key.
    pub client_key: Option<PathBuf>,
    /// The prefix of our queues and exchanges: 1 to 64 of `[A-Za-z0-9._-]`.
    #[serde(deserialize_with = "parse::queue_prefix")]
    pub prefix: String,
    /// The exchange that events are published to.
    #[serde(deserialize_with = "parse::exchange")]
    pub events_exchange: String,
    /// How long the broker may take to confirm a message; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub confirm_timeout: Duration,
    /// RabbitMQ's management API, which `webhookctl doctor` reads with the user and the password of `url`.
    #[serde(default, deserialize_with = "parse::optional_http_url")]
    pub management_url: Option<Url>,
}

impl Broker {
    /// The files that connections over TLS use.
    ///
    /// # Errors
    /// [`SettingsError::Missing`] for a certificate without its key, or the other way around.
    pub fn tls_files(&self) -> Result<ClientFiles, SettingsError> {
        tls_files("broker", &self.ca_file, &self.client_certificate, &self.client_key)
    }
}

fn tls_files(
    section: &str,
    authorities: &Option<PathBuf>,
    certificate: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> Result<ClientFiles, SettingsError> {
    let identity = match (certificate.clone(), key.clone()) {
        (Some(certificate), Some(key)) => Some(IdentityFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(SettingsError::missing(&format!("{section}.client_key"))),
        (None, Some(_)) => return Err(SettingsError::missing(&format!("{section}.client_certificate"))),
    };
    Ok(ClientFiles { authorities: authorities.clone(), identity })
}

/// `api`: the REST API.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Where it listens. With port 0 the system chooses the port.
    #[serde(deserialize_with = "parse::address")]
    pub listen: SocketAddr,
    /// How many deliveries a recovery sends again per second, about; 1 to 65535.
    #[serde(deserialize_with = "parse::small_count")]
    pub recover_per_second: u16,
    /// What knows the administrators' sessions.
    pub sessions: SessionBackEnd,
    /// Where the business application says who is logged in. Read it by
    /// [`Settings::introspection_url`](super::Settings::introspection_url).
    #[serde(default, deserialize_with = "parse::optional_http_url")]
    pub introspection_url: Option<Url>,
    /// The time for one introspection, from resolving to the end of the answer; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub introspection_timeout: Duration,
    /// How long a confirmed session is not asked for again; zero asks every time.
    #[serde(deserialize_with = "parse::duration")]
    pub introspection_cache: Duration,
    /// Requests per minute and tenant in each process, on average; 0 does not limit.
    #[serde(deserialize_with = "parse::number")]
    pub rate_limit_per_minute: usize,
    /// Requests of one tenant that may come together, at least 1.
    #[serde(deserialize_with = "parse::count")]
    pub rate_limit_burst: usize,
}

/// What knows the administrators' sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionBackEnd {
    /// The table `admin_sessions`.
    Database,
    /// The business application, at `introspection_url`.
    Introspection,
}

/// `console`: the administrators' pages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    /// Whether api-service serves it.
    #[serde(deserialize_with = "parse::value")]
    pub enabled: bool,
    /// The log-in page of the business application. Without it the console has one of its own, for development.
    #[serde(default, deserialize_with = "parse::optional_http_url")]
    pub login_url: Option<Url>,
    /// Where browsers reach api-service: a URL without a path.
    #[serde(default, deserialize_with = "parse::optional_origin")]
    pub public_url: Option<Url>,
}

impl Console {
    /// The log-in page of the business application, and the URL that its users return to.
    ///
    /// # Errors
    /// When there is such a page, and no way back from it.
    pub fn log_in(&self) -> Result<Option<(&Url, &Url)>, SettingsError> {
        let way_back = || {
            let reason = "set console.public_url too, the way back from the log-in";
            self.public_url.as_ref().ok_or_else(|| SettingsError::invalid("console.login_url", reason))
        };
        self.login_url.as_ref().map(|login| Ok((login, way_back()?))).transpose()
    }
}

/// `ops`: health and metrics.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ops {
    /// Where they are served; each process has a default of its own.
    #[serde(default, deserialize_with = "parse::optional_address")]
    pub listen: Option<SocketAddr>,
}

/// `secrets`: the keys that seal signing secrets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// `id:64 hex digits`, comma separated; read them by [`secret_keys`](crate::connections::secret_keys).
    pub keys: Option<Sensitive>,
}

/// `signing`: what signs a delivery besides `X-Service-Signature`, which always does.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    /// Whether attempts also carry the headers of Standard Webhooks.
    #[serde(deserialize_with = "parse::value")]
    pub standard_webhooks: bool,
}

/// `retry`: when failed attempts are tried again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// When each retry is due, measured from the first failure.
    #[serde(deserialize_with = "parse::value")]
    pub schedule: RetrySchedule,
}

/// `egress`: how receivers are called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Egress {
    /// The time for one attempt, from resolving to the end of the answer; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub timeout: Duration,
    /// A PEM file of authorities trusted beside the public ones.
    pub extra_ca_file: Option<PathBuf>,
    /// Networks that no delivery goes to, also if they are allowed or public.
    #[serde(deserialize_with = "parse::networks")]
    pub denied_networks: Vec<IpNet>,
    /// Networks exempt from the address policy.
    #[serde(deserialize_with = "parse::networks")]
    pub allowed_networks: Vec<IpNet>,
    /// Ports that receivers may listen on; an empty list allows any.
    #[serde(deserialize_with = "parse::value")]
    pub allowed_ports: Ports,
    /// Hosts that no webhook may point to, with everything below them.
    #[serde(deserialize_with = "parse::value")]
    pub denied_host_suffixes: HostSuffixes,
    /// Name servers; an empty list means those of the system, after its `/etc/hosts`.
    #[serde(deserialize_with = "parse::addresses")]
    pub name_servers: Vec<SocketAddr>,
    /// A host to which a TLS connection can be made while receivers can be reached: dispatchers stop if neither can be, also
    /// with few tenants. Nothing is sent. Read it by [`Egress::canary`].
    #[serde(default, deserialize_with = "parse::optional_http_url")]
    pub canary_url: Option<Url>,
    /// How long an unused connection is kept; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub idle_timeout: Duration,
    /// Unused connections kept per host; 0 keeps none.
    #[serde(deserialize_with = "parse::number")]
    pub max_idle_per_host: usize,
    /// Unused connections kept to all hosts together, about.
    #[serde(deserialize_with = "parse::number")]
    pub max_idle: usize,
}

impl Egress {
    /// Where deliveries may go.
    pub fn address_policy(&self) -> AddressPolicy {
        AddressPolicy::allowing(self.allowed_networks.clone())
            .without_networks(self.denied_networks.clone())
            .with_ports(self.allowed_ports.clone())
            .without_hosts(self.denied_host_suffixes.clone())
    }

    /// The URL to which dispatchers connect to find out whether receivers can be reached.
    ///
    /// # Errors
    /// When deliveries may not go there.
    pub fn canary(&self) -> Result<Option<WebhookUrl>, SettingsError> {
        let parse = |url: &Url| {
            WebhookUrl::register(url.as_str(), usize::MAX, &self.address_policy())
                .map_err(|fault| SettingsError::invalid("egress.canary_url", fault))
        };
        self.canary_url.as_ref().map(parse).transpose()
    }

    /// Reads the authorities that are trusted beside the public ones.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn extra_ca_pem(&self) -> Result<Option<Vec<u8>>, SettingsError> {
        let read = |path: &PathBuf| {
            let unreadable = |error| format!("{} cannot be read: {error}", path.display());
            std::fs::read(path).map_err(|error| SettingsError::invalid("egress.extra_ca_file", unreadable(error)))
        };
        self.extra_ca_file.as_ref().map(read).transpose()
    }
}

/// `dispatcher`: from deliveries to attempts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatcher {
    /// Attempts at the same time, at least 1.
    #[serde(deserialize_with = "parse::small_count")]
    pub max_in_flight: u16,
    /// Further attempts at the same time, half of them for webhooks that do not answer, half for those that answer late;
    /// at least 1.
    #[serde(deserialize_with = "parse::small_count")]
    pub slow_in_flight: u16,
    /// The part of either that one webhook may hold, above 0 and at most 1.
    #[serde(deserialize_with = "parse::fraction")]
    pub webhook_share: f64,
    /// The part of either that one tenant may hold, above 0 and at most 1.
    #[serde(deserialize_with = "parse::fraction")]
    pub tenant_share: f64,
    /// Jobs per read and write of the ledger, at most; at least 1.
    #[serde(deserialize_with = "parse::small_count")]
    pub batch: u16,
}

/// `ingest`: from events to deliveries.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Events per transaction, at most; at least 1.
    #[serde(deserialize_with = "parse::small_count")]
    pub batch: u16,
    /// Jobs a second above which the load is high: a message then holds several jobs; 0 for always.
    #[serde(deserialize_with = "parse::number")]
    pub batch_above: u32,
    /// Jobs of one tenant a second from which on they take the bulk lane, if all tenants below it have fewer together.
    #[serde(deserialize_with = "parse::number")]
    pub flood: u32,
}

/// `reconcile`: lost-job detection, which compares the ledger with the queues.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// How often they are compared; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub interval: Duration,
    /// The time by which a delivery is overdue when its job counts as lost, while the main lane holds little; six times
    /// this whatever the lanes hold. Longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub grace: Duration,
}

/// `retention`: how long history is kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The age up to which events are accepted and deliveries resent; at least two days. A day is kept for the
    /// schedule's length and a day more.
    #[serde(deserialize_with = "parse::retention")]
    pub keep: Duration,
    /// The age up to which bodies of events are kept, if it is shorter than `keep`; at least two days.
    #[serde(default, deserialize_with = "parse::optional_retention")]
    pub bodies: Option<Duration>,
}

impl Retention {
    /// Returns the times for which deliveries and bodies are kept. A body is not kept longer than its deliveries.
    pub fn kept(&self) -> RetentionTimes {
        RetentionTimes { log: self.keep, bodies: self.bodies.unwrap_or(self.keep).min(self.keep) }
    }
}

/// `notices`: when administrators are notified that a webhook is failing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notices {
    /// The age of the first failure since the last success; longer than zero.
    #[serde(deserialize_with = "parse::threshold")]
    pub failing_after: Duration,
    /// Failed attempts since then, at least 1.
    #[serde(deserialize_with = "parse::small_count")]
    pub failing_attempts: u16,
    /// For how long it has been failing when they are notified again.
    #[serde(deserialize_with = "parse::thresholds")]
    pub failing_again_after: Vec<Duration>,
}

/// `limits`: the most that tenants and events may ask for, each at least 1.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Characters of a webhook's name.
    #[serde(deserialize_with = "parse::count")]
    pub name_chars: usize,
    /// Characters of a webhook's URL.
    #[serde(deserialize_with = "parse::count")]
    pub url_chars: usize,
    /// Bytes of an API request's body.
    #[serde(deserialize_with = "parse::count")]
    pub request_body_bytes: usize,
    /// Webhooks of one tenant.
    #[serde(deserialize_with = "parse::count")]
    pub webhooks_per_tenant: usize,
    /// Bytes of an event's `data`.
    #[serde(deserialize_with = "parse::count")]
    pub event_data_bytes: usize,
}

/// `shutdown`: how a process ends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// The time to finish what is under way; zero abandons it.
    #[serde(deserialize_with = "parse::duration")]
    pub deadline: Duration,
}

/// `traces`: spans for a collector.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Where the collector is. Without it there are no traces.
    #[serde(default, deserialize_with = "parse::optional_http_url")]
    pub endpoint: Option<Url>,
    /// Headers of each request to the collector; read by [`traces`](crate::connections::traces).
    pub headers: Option<Sensitive>,
    /// The part of the traces that begin here, from 0 to 1.
    #[serde(deserialize_with = "parse::ratio")]
    pub sample_ratio: f64,
    /// The time for one request to the collector; longer than zero.
    #[serde(deserialize_with = "parse::positive_duration")]
    pub timeout: Duration,
}

/// `log`: what is written to standard error.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// A level, or directives per target as in `info,dispatcher=debug`; checked by [`logs::init`](crate::logs::init).
    pub level: String,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}
