//! The database's hosts: in which order they are tried, and how long each may take.

use std::{net::IpAddr, time::Duration};

use diesel::ConnectionError;
use domain::error_chain;
use parking_lot::Mutex;
use tokio::{
    net::lookup_host,
    time::{Instant, timeout},
};
use tokio_postgres::{Config, config::Host};

use crate::{connect::driver::reason, error::LedgerError};

/// PostgreSQL's port, where the connection string names none.
const DEFAULT_PORT: u16 = 5432;

/// The host of the latest connection. All pools of a process share it.
#[derive(Default)]
pub(crate) struct LatestHost(Mutex<HostAddress>);

/// A host by its number in the connection string, and an address of its name.
#[derive(Clone, Copy, Default)]
struct HostAddress {
    host: usize,
    address: Option<IpAddr>,
}

/// The settings of a connection to one host of a connection string.
struct OneHost(Config);

/// Opens a connection to the first host that can be used, in `time`. Begins with the host that was reached last. Each
/// host, and each address of its name, has an equal share of the time that is left, for all of `open`. tokio-postgres
/// limits only the TCP connection: a host that is silent after it would take all the time.
///
/// # Errors
/// The error of the last host, unless an earlier one answered and said why it cannot be used. A session that belongs to
/// several clients ends the search.
pub(crate) async fn first_usable<T, F>(
    settings: &Config,
    latest_host: &LatestHost,
    time: Duration,
    open: impl Fn(Config) -> F,
) -> Result<T, ConnectionError>
where
    F: Future<Output = Result<T, ConnectionError>>,
{
    // A list that tokio-postgres refuses.
    let Some(hosts) = split(settings) else { return open(settings.clone()).await };
    let (began, latest) = (Instant::now(), *latest_host.0.lock());
    let mut failed = None;
    for (step, left) in (1..=hosts.len()).rev().enumerate() {
        let number = (latest.host + step) % hosts.len();
        let share = share_of(time, began, left);
        match hosts[number].open(latest.address, share, &open).await {
            Ok((address, opened)) => {
                latest_host.note(HostAddress { host: number, address }, &hosts[number], failed.as_ref());
                return Ok(opened);
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => failed = Some(more_specific(failed, error)),
        }
    }
    Err(failed.unwrap_or_else(|| silent(time)))
}

impl LatestHost {
    /// Notes where a connection leads to. Warns the operator when it is another host than before.
    fn note(&self, used: HostAddress, host: &OneHost, failed: Option<&ConnectionError>) {
        let before = std::mem::replace(&mut *self.0.lock(), used);
        if let Some(failed) = failed
            && before.host != used.host
        {
            let error = error_chain(failed);
            tracing::warn!(host = host.to_string(), error, "another host of the database is used, as one cannot be");
        }
    }
}

impl OneHost {
    /// Opens a connection, beginning with the latest address if it still is one of the name's.
    async fn open<T, F>(
        &self,
        latest: Option<IpAddr>,
        time: Duration,
        open: &impl Fn(Config) -> F,
    ) -> Result<(Option<IpAddr>, T), ConnectionError>
    where
        F: Future<Output = Result<T, ConnectionError>>,
    {
        let began = Instant::now();
        let mut addresses = in_time(time, self.addresses()).await?;
        addresses.sort_by_key(|address| *address != latest);
        let mut failed = None;
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            match in_time(share_of(time, began, left), open(self.at(*address))).await {
                Ok(opened) => return Ok((*address, opened)),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => failed = Some(more_specific(failed, error)),
            }
        }
        Err(failed.unwrap_or_else(|| ConnectionError::BadConnection("the host's name has no address".to_owned())))
    }

    /// Looks up the name, unless the connection string has the address. A directory of sockets has none.
    async fn addresses(&self) -> Result<Vec<Option<IpAddr>>, ConnectionError> {
        let given = self.0.get_hostaddrs().first().copied();
        let ([Host::Tcp(name)], None) = (self.0.get_hosts(), given) else { return Ok(vec![given]) };
        #[expect(clippy::disallowed_methods, reason = "tokio-postgres looks the operator's own names up in this way")]
        let found = lookup_host((name.as_str(), self.port())).await;
        let found =
            found.map_err(|error| ConnectionError::BadConnection(format!("no address of the host: {error}")))?;
        Ok(found.map(|address| Some(address.ip())).collect())
    }

    /// The settings of a connection to an address of the host's name. The name stays, as TLS verifies it.
    fn at(&self, address: Option<IpAddr>) -> Config {
        let mut settings = self.0.clone();
        if let (Some(address), []) = (address, self.0.get_hostaddrs()) {
            settings.hostaddr(address);
        }
        settings
    }

    fn port(&self) -> u16 {
        self.0.get_ports().first().copied().unwrap_or(DEFAULT_PORT)
    }
}

impl std::fmt::Display for OneHost {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.get_hosts(), self.0.get_hostaddrs()) {
            ([Host::Tcp(name)], _) => write!(text, "{name}:{}", self.port()),
            ([Host::Unix(directory)], _) => write!(text, "{}", directory.display()),
            (_, [address]) => write!(text, "{address}:{}", self.port()),
            _ => Ok(()),
        }
    }
}

/// The hosts of a connection string. `None` unless the numbers of hosts, addresses and ports agree.
fn split(settings: &Config) -> Option<Vec<OneHost>> {
    let (names, addresses, ports) = (settings.get_hosts(), settings.get_hostaddrs(), settings.get_ports());
    let hosts = names.len().max(addresses.len());
    let agree = |count| count == 0 || count == hosts;
    let agrees = hosts > 0 && agree(names.len()) && agree(addresses.len()) && (agree(ports.len()) || ports.len() == 1);
    let base = without_hosts(settings);
    let one = |number: usize| {
        let mut one = base.clone();
        match names.get(number) {
            Some(Host::Tcp(name)) => _ = one.host(name),
            Some(Host::Unix(directory)) => _ = one.host_path(directory),
            None => {}
        }
        addresses.get(number).map(|address| one.hostaddr(*address));
        one.port(ports.get(number).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT));
        OneHost(one)
    };
    agrees.then(|| (0..hosts).map(one).collect())
}

/// Copies all settings without the hosts, which cannot be taken out of a [`Config`]. The order of hosts is not one of them.
fn without_hosts(from: &Config) -> Config {
    let mut to = Config::new();
    from.get_user().map(|user| to.user(user));
    from.get_password().map(|password| to.password(password));
    from.get_dbname().map(|name| to.dbname(name));
    from.get_options().map(|options| to.options(options));
    from.get_application_name().map(|name| to.application_name(name));
    from.get_connect_timeout().map(|limit| to.connect_timeout(*limit));
    from.get_tcp_user_timeout().map(|limit| to.tcp_user_timeout(*limit));
    from.get_keepalives_interval().map(|interval| to.keepalives_interval(interval));
    from.get_keepalives_retries().map(|retries| to.keepalives_retries(retries));
    to.ssl_mode(from.get_ssl_mode())
        .ssl_negotiation(from.get_ssl_negotiation())
        .keepalives(from.get_keepalives())
        .keepalives_idle(from.get_keepalives_idle())
        .target_session_attrs(from.get_target_session_attrs())
        .channel_binding(from.get_channel_binding())
        .load_balance_hosts(from.get_load_balance_hosts());
    to
}

/// An equal share of the time that is left since `began`.
fn share_of(time: Duration, began: Instant, left: usize) -> Duration {
    time.saturating_sub(began.elapsed()) / u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

async fn in_time<T>(
    time: Duration,
    opening: impl Future<Output = Result<T, ConnectionError>>,
) -> Result<T, ConnectionError> {
    timeout(time, opening).await.unwrap_or_else(|_| Err(silent(time)))
}

/// The error of a host that did not answer in time.
pub(crate) fn silent(time: Duration) -> ConnectionError {
    ConnectionError::BadConnection(format!("no connection within {time:?}"))
}

/// Returns `true` for an error that ends the search: a pooler that shares sessions is refused, even where another host may be none.
fn is_final(error: &ConnectionError) -> bool {
    matches!(reason(error), Some(LedgerError::SharedSession))
}

/// Returns the later error, unless only the earlier one is an answer: of TLS, or of a server that is read-only.
fn more_specific(earlier: Option<ConnectionError>, later: ConnectionError) -> ConnectionError {
    match (earlier, later) {
        (Some(answer @ ConnectionError::CouldntSetupConfiguration(_)), ConnectionError::BadConnection(_)) => answer,
        (_, later) => later,
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use diesel::result::Error;

    use super::*;

    const SEARCH_TIMEOUT: Duration = Duration::from_secs(6);

    fn hosts(text: &str) -> Config {
        Config::from_str(text).unwrap()
    }

    fn bad(why: &str) -> ConnectionError {
        ConnectionError::BadConnection(why.to_owned())
    }

    /// Opens like a list of hosts by their ports: 1 is silent, 2 refuses, 3 is read-only, others are usable.
    async fn open(settings: Config) -> Result<u16, ConnectionError> {
        match settings.get_ports() {
            [1] => std::future::pending().await,
            [2] => Err(bad("refused")),
            [3] => Err(ConnectionError::CouldntSetupConfiguration(Error::NotFound)),
            [port] => Ok(*port),
            ports => panic!("one host at a time: {ports:?}"),
        }
    }

    #[test]
    fn each_host_keeps_every_other_setting() {
        let text = "postgres://u:p%40@10.0.0.1:1,10.0.0.2:2/d?options=-c%20a%3Db&application_name=x&connect_timeout=3\
            &tcp_user_timeout=4&keepalives=0&keepalives_idle=5&keepalives_interval=6&keepalives_retries=7\
            &target_session_attrs=read-write&channel_binding=require&load_balance_hosts=random&sslmode=require\
            &sslnegotiation=direct";
        let all = hosts(text);
        let mut put_together = without_hosts(&all);
        assert!(put_together.get_hosts().is_empty());
        put_together.host("10.0.0.1").host("10.0.0.2").port(1).port(2);
        assert!(put_together == all, "{put_together:?} instead of {all:?}");
    }

    #[test]
    fn each_host_has_its_own_name_address_and_port() {
        let of = |text: &str| -> Option<Vec<String>> {
            let shown = split(&hosts(text))?.into_iter().map(|host| {
                let settings = host.at(None);
                format!("{host} {:?} {:?} {:?}", settings.get_hosts(), settings.get_hostaddrs(), settings.get_ports())
            });
            Some(shown.collect())
        };
        let named = "host=a,b hostaddr=10.0.0.1,10.0.0.2 port=7,8";
        let expected = r#"b:8 [Tcp("b")] [10.0.0.2] [8]"#;
        assert_eq!(of(named).unwrap()[1], expected);
        assert_eq!(of("host=a,b port=7").unwrap()[1], r#"b:7 [Tcp("b")] [] [7]"#);
        assert_eq!(of("hostaddr=10.0.0.1").unwrap(), ["10.0.0.1:5432 [] [10.0.0.1] [5432]"]);
        assert_eq!(of("host=/run/pg").unwrap(), [r#"/run/pg [Unix("/run/pg")] [] [5432]"#]);
        for faulty in ["host=a,b port=1,2,3", "host=a,b hostaddr=10.0.0.1", "user=u"] {
            assert_eq!(of(faulty), None, "{faulty}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_host_leaves_the_others_their_share_and_is_not_asked_again() {
        let (settings, latest_host) = (hosts("host=127.0.0.1,127.0.0.1,127.0.0.1 port=1,2,4"), LatestHost::default());
        let began = Instant::now();
        assert_eq!(first_usable(&settings, &latest_host, SEARCH_TIMEOUT, open).await.unwrap(), 4);
        let took = began.elapsed();
        assert!(
            took >= SEARCH_TIMEOUT / 3 && took < SEARCH_TIMEOUT / 2,
            "the silent one has its share alone: {took:?}"
        );
        let began = Instant::now();
        assert_eq!(first_usable(&settings, &latest_host, SEARCH_TIMEOUT, open).await.unwrap(), 4);
        assert!(began.elapsed() < SEARCH_TIMEOUT / 6, "the search begins with the host that was reached");
    }

    #[tokio::test(start_paused = true)]
    async fn the_search_ends_in_time_with_the_error_that_tells_most() {
        for (ports, error) in [("1,3,2", "NotFound"), ("2,1", "no connection within"), ("1,2", "refused")] {
            let settings =
                hosts(&format!("hostaddr={} port={ports}", vec!["127.0.0.1"; ports.len().div_ceil(2)].join(",")));
            let began = Instant::now();
            let failed = first_usable(&settings, &LatestHost::default(), SEARCH_TIMEOUT, open).await.unwrap_err();
            assert!(format!("{failed:?}").contains(error), "{ports}: {failed:?}");
            assert!(began.elapsed() <= SEARCH_TIMEOUT + SEARCH_TIMEOUT / 6, "{ports}");
        }
    }
}
