//! `webhookctl listen`: a receiver for development.

mod answers;
mod certificate;
mod registration;
mod screen;
mod server;
mod verdict;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, ensure};
use domain::{EventType, TenantId};
use hyper::http::uri::Authority as HostAndPort;
use service_kit::{Settings, SettingsError, shutdown};
use signing::SigningSecret;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::arguments::{self, Misuse, stdin};

use self::{answers::Answers, certificate::Authority, registration::Registration, screen::Screen, server::Server};

const NOT_REMOVED: &str = "the webhook could not be removed: the next `listen --register` on the same port removes it";

/// Receives deliveries and shows each with the verdict on its signatures: a receiver for development.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// The host in the webhook's URL, which is also the certificate's name.
    #[arg(long, default_value = "localhost", value_parser = host)]
    host: String,
    /// The folder of the authority that signs the certificate. What is missing there is made. `make up` makes one that
    /// `make run` trusts [default: webhookctl in the user's folder of data].
    #[arg(long, value_name = "FOLDER", env = "WEBHOOKCTL_AUTHORITY")]
    authority: Option<PathBuf>,

    /// Registers a webhook for the tenant, and removes it at the end, also on Ctrl-C.
    #[arg(long, requires = "tenant")]
    register: bool,
    /// The tenant of the webhook: a UUID.
    #[arg(long, value_name = "UUID", env = "WEBHOOKCTL_TENANT")]
    tenant: Option<TenantId>,
    /// The webhook's event types, separated by commas [default: all seven].
    #[arg(long, value_name = "TYPES", value_delimiter = ',', requires = "register")]
    events: Vec<EventType>,
    /// The address of the API [default: the setting `api.listen`].
    #[arg(long, value_name = "URL", requires = "register", value_parser = arguments::url)]
    api: Option<String>,
    /// The signing secret of a webhook that exists already, as it was shown, or `-` to read it from standard input.
    /// `--register` needs none.
    #[arg(long, env = "SIGNING_SECRET", hide_env_values = true)]
    secret: Option<String>,

    /// The status to answer.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Answers `--status` to so many attempts of each delivery, and 200 to the next ones.
    #[arg(long = "for", value_name = "ATTEMPTS", requires = "status")]
    attempts: Option<u32>,
    /// Waits before it answers, such as 12s.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// Hands each delivery to this URL as it came, and its answer back.
    #[arg(long, value_name = "URL", conflicts_with_all = ["status", "attempts"], value_parser = arguments::url)]
    forward: Option<String>,
    /// Shows long bodies as a whole.
    #[arg(long)]
    full: bool,
}

/// Listens until a signal.
///
/// Only `--register` needs the service's settings.
pub(crate) async fn run(settings: Result<Settings, SettingsError>, arguments: Arguments) -> anyhow::Result<()> {
    let answers = Answers::new(&arguments)?;
    let authority = Authority::in_folder(arguments.authority.clone())?;
    let tls = authority.acceptor(&arguments.host)?;
    let stop = on_signals().context("signals cannot be handled")?;
    let listener = TcpListener::bind(arguments.listen).await.with_context(|| {
        format!("--listen {}: cannot listen on the address (port 0 chooses a free port)", arguments.listen)
    })?;
    let port = listener.local_addr().context("the listener has no address")?.port();
    let url = format!("https://{}/", authority_of(&arguments.host, port));

    let screen = Screen::new(arguments.full);
    screen.listening(&url, arguments.forward.as_deref());
    for setting in missing(settings.as_ref().ok(), &authority, &arguments)? {
        screen.setting(&setting);
    }
    let registration = match arguments.tenant.filter(|_| arguments.register) {
        Some(tenant) => {
            let api = arguments.api.as_deref();
            let registration = Registration::make(&settings?, api, tenant, &url, &arguments.events, &screen).await?;
            screen.registered(tenant, registration.id);
            Some(registration)
        }
        None => None,
    };
    let secret = match &registration {
        Some(registration) => Some(registration.secret.clone()),
        None => arguments.secret.map(given).transpose()?,
    };
    if secret.is_none() {
        screen.no_secret();
    }
    let secret = secret.map(SigningSecret::from);

    let server = Arc::new(Server { screen, secret, answers, stop, attempts: Mutex::default() });
    Arc::clone(&server).serve(listener, tls).await;
    if let Some(registration) = registration {
        registration.remove().await.context(NOT_REMOVED)?;
        server.screen.removed();
    }
    server.screen.summary();
    Ok(())
}

/// A token that ends the run: also when the terminal is closed.
fn on_signals() -> io::Result<CancellationToken> {
    let (stop, mut hangup) = (shutdown::on_signals()?, signal(SignalKind::hangup())?);
    let stopped = stop.clone();
    tokio::spawn(async move {
        hangup.recv().await;
        stopped.cancel();
    });
    Ok(stop)
}

/// The name or the address of a host.
fn host(text: &str) -> Result<String, &'static str> {
    match authority_of(text, 443).parse::<HostAndPort>() {
        Ok(parsed) if parsed.host().trim_matches(['[', ']']) == text => Ok(text.to_owned()),
        _ => Err("not the name of a host"),
    }
}

/// Host and port in a URL.
fn authority_of(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(host)) => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// The given secret, or for `-` that on standard input.
fn given(argument: String) -> anyhow::Result<String> {
    let secret = if argument == "-" { stdin()? } else { argument };
    let secret = secret.trim();
    ensure!(secret.starts_with("whsec_"), Misuse("--secret: a signing secret begins with whsec_".to_owned()));
    Ok(secret.to_owned())
}

/// The settings that the dispatchers lack, as far as this process has the same ones.
fn missing(settings: Option<&Settings>, authority: &Authority, arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let trusted = settings.map(|settings| settings.egress.extra_ca_pem()).transpose()?.flatten().unwrap_or_default();
    if !String::from_utf8_lossy(&trusted).contains(authority.pem.trim()) {
        missing.push(format!("WEBHOOKS__EGRESS__EXTRA_CA_FILE={}", authority.file.display()));
    }
    let listens_on = arguments.listen.ip();
    let mut allowed = settings.into_iter().flat_map(|settings| settings.egress.allowed_networks.iter());
    let is_allowed = allowed.any(|network| network.contains(&listens_on));
    if listens_on.is_loopback() && !is_allowed {
        missing.push("WEBHOOKS__EGRESS__ALLOWED_NETWORKS=127.0.0.0/8,::1/128".to_owned());
    }
    Ok(missing)
}
