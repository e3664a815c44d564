//! The handle to the broker, and one connection: opening and closing it. The supervisors in `consumer.rs` and
//! `publisher.rs` build a failed one again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use domain::error_chain;
use lapin::{
    Channel, Connection, ConnectionProperties,
    uri::{AMQPUri, AMQPUserInfo},
};
use tls::{ClientFiles, Failure};
use tokio::sync::Mutex;

use crate::{
    addresses::Addresses,
    dial,
    error::BrokerError,
    essential::EssentialTasks,
    stats::Stats,
    topology::{Names, Topology},
};

/// How to reach the broker, and what to declare on it.
#[derive(Clone)]
pub struct BrokerConfig {
    /// `amqp://user:password@host:port/vhost`, or `amqps` for TLS. Of a cluster, one for each node, separated by commas.
    pub uri: String,
    /// The file that holds the password, in place of the addresses. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// The files of TLS, for all addresses that are `amqps`.
    pub tls: ClientFiles,
    /// The names of exchanges and queues.
    pub names: Names,
    /// The gaps of the retry schedule.
    pub gaps: Vec<Duration>,
    /// How long a confirm may take.
    pub confirm_timeout: Duration,
    /// The name of this process in the broker's own lists.
    pub process: &'static str,
}

/// The broker, as one process sees it. It is cheap to clone and makes no connection by itself.
#[derive(Clone)]
pub struct Broker {
    pub(crate) context: Arc<BrokerContext>,
}

/// The settings and the state that all clones of a [`Broker`] share.
pub(crate) struct BrokerContext {
    pub(crate) config: BrokerConfig,
    pub(crate) addresses: Addresses,
    /// Why the last connection was not made, if TLS or a file was the reason.
    pub(crate) tls_failure: parking_lot::Mutex<Option<Failure>>,
    pub(crate) topology: Topology,
    pub(crate) stats: Stats,
    essential: EssentialTasks,
    /// The connection for depth queries, one at a time. It is kept, as connecting costs more than asking.
    pub(crate) depths: Mutex<Option<(Connection, Channel)>>,
    /// Held while a node that has none of the queues is judged, so that a process judges once.
    pub(crate) judging: Mutex<()>,
}

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The roles of connections that receive no messages.
const ROLES_WITHOUT_MESSAGES: [&str; 3] = ["publish", "depth", "sentinel"];
/// The largest frame of a connection that receives no messages. lapin keeps two buffers of 32 frames for each connection,
/// which stay in memory. What this service publishes has small headers, and larger bodies take more frames. All other
/// connections use the broker's own size: the headers of a foreign message come in one frame, however large.
const SMALL_FRAME_BYTES: u32 = 32 * 1024;
/// The wait before a close: a quorum queue ignores acknowledgements that arrive together with their connection's close.
const CLOSE_DELAY: Duration = Duration::from_millis(750);
/// The time in which a broker, which may be frozen, has to answer a close.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_millis(750);

impl Broker {
    /// Checks the configuration. Connects nothing.
    ///
    /// # Errors
    /// [`BrokerError::Uri`] when the address is malformed, [`BrokerError::File`] when a file cannot be used,
    /// [`BrokerError::NoTls`] when there is one and no address needs it, [`BrokerError::TwoPasswords`] when an address
    /// holds a password beside its file.
    pub fn new(config: &BrokerConfig) -> Result<Self, BrokerError> {
        let addresses = Addresses::parse(&config.uri)?;
        if let Some(file) = &config.password_file {
            if addresses.hold_password {
                return Err(BrokerError::TwoPasswords);
            }
            tls::password(file)?;
        }
        match addresses.use_tls() {
            true => drop(config.tls.read()?),
            false if config.tls.is_empty() => {}
            false => return Err(BrokerError::NoTls),
        }
        let context = BrokerContext {
            config: config.clone(),
            addresses,
            tls_failure: parking_lot::Mutex::default(),
            topology: Topology::new(&config.names, &config.gaps),
            stats: Stats::default(),
            essential: EssentialTasks::default(),
            depths: Mutex::default(),
            judging: Mutex::default(),
        };
        Ok(Self { context: Arc::new(context) })
    }

    /// The names of exchanges and queues.
    pub fn names(&self) -> &Names {
        &self.context.config.names
    }

    /// All that the services declare on the broker.
    pub fn topology(&self) -> &Topology {
        &self.context.topology
    }

    /// The hosts, other than this machine, that are reached without TLS.
    pub fn in_the_clear(&self) -> Vec<String> {
        self.context.addresses.in_the_clear()
    }

    /// The hosts of the addresses, other than this machine.
    pub fn elsewhere(&self) -> Vec<String> {
        self.context.addresses.elsewhere()
    }

    /// Why there is no connection, if TLS or a file is the reason.
    pub(crate) fn tls_failure(&self) -> Option<Failure> {
        self.context.tls_failure.lock().clone()
    }

    /// The tasks that the process needs. Among them are those that keep its connections.
    pub fn essential(&self) -> &EssentialTasks {
        &self.context.essential
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// The user and the password of the first address. Reads the password's file.
    ///
    /// # Errors
    /// [`BrokerError::File`] when the file cannot be used.
    pub fn login(&self) -> Result<(String, String), BrokerError> {
        let login = self.context.addresses.all().next().map(|uri| self.login_at(uri)).transpose()?.unwrap_or_default();
        Ok((login.username, login.password))
    }

    fn login_at(&self, uri: &AMQPUri) -> Result<AMQPUserInfo, BrokerError> {
        let mut login = uri.authority.userinfo.clone();
        if let Some(file) = &self.context.config.password_file {
            login.password = tls::password(file)?;
        }
        Ok(login)
    }

    /// Connects to a node within `limit`. Reads the password's file, so a password that was changed needs no restart.
    pub(crate) async fn dial(&self, uri: &AMQPUri, role: &str, limit: Duration) -> Result<Connection, BrokerError> {
        let name = format!("{} ({role})", self.context.config.process);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let mut uri = uri.clone();
        uri.authority.userinfo = self.login_at(&uri)?;
        if ROLES_WITHOUT_MESSAGES.contains(&role) {
            uri.query.frame_max.get_or_insert(SMALL_FRAME_BYTES);
        }
        dial::connect(uri, properties, &self.context.config.tls, limit).await
    }

    /// Connects to a node, opens a channel and declares nothing.
    pub(crate) async fn open(
        &self,
        uri: &AMQPUri,
        role: &str,
        limit: Duration,
    ) -> Result<(Connection, Channel), BrokerError> {
        let connection = self.dial(uri, role, limit).await?;
        let channel = connection.create_channel().await.map_err(BrokerError::of_connecting)?;
        Ok((connection, channel))
    }
}

/// Gives up after 10 s: lapin may never answer what it is asked for while its connection fails.
pub(crate) async fn in_time<T>(step: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
    tokio::time::timeout(CONNECT_TIMEOUT, step).await.unwrap_or(Err(BrokerError::Timeout(CONNECT_TIMEOUT)))
}

/// Closes a connection after the last acknowledgements have settled. It takes 1.5 s at most.
pub(crate) async fn close(connection: &Connection) {
    tokio::time::sleep(CLOSE_DELAY).await;
    close_unused(connection).await;
}

/// Closes a connection on which nothing was acknowledged. Takes 750 ms at most.
pub(crate) async fn close_unused(connection: &Connection) {
    if let Ok(Err(error)) = tokio::time::timeout(CLOSE_TIMEOUT, connection.close(200, "bye".into())).await {
        tracing::debug!(error = error_chain(&error), "the connection to the broker was gone already");
    }
}
