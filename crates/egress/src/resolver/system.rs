//! The system's configuration of names: `/etc/resolv.conf` and `/etc/hosts`, read again when they change.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::NameServerConfig,
    net::NetError,
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{clients, name_server};

/// The shortest time between two reads of the files. Both are small and local: reading them takes microseconds.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(10);

/// The name server that the C library asks by default.
const FALLBACK_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// The files, and what the last read found.
pub(super) struct System {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    limit: Duration,
    last: Mutex<Last>,
}

struct Last {
    texts: Texts,
    read_at: Instant,
    current: Arc<Current>,
}

/// What the files hold. For a `resolv.conf` that cannot be read, the reason.
#[derive(PartialEq, Eq)]
struct Texts {
    resolv_conf: Result<Vec<u8>, String>,
    hosts: Option<Vec<u8>>,
}

/// The configuration in use.
pub(super) struct Current {
    pub(super) clients: Vec<TokioResolver>,
    hosts: Hosts,
    notice: Option<String>,
}

impl System {
    pub(super) fn of_this_machine(limit: Duration) -> Result<Self, NetError> {
        Self::of("/etc/resolv.conf".into(), "/etc/hosts".into(), limit)
    }

    fn of(resolv_conf: PathBuf, hosts: PathBuf, limit: Duration) -> Result<Self, NetError> {
        let texts = read(&resolv_conf, &hosts);
        let current = Arc::new(Current::of(&texts, limit)?);
        let last = Mutex::new(Last { texts, read_at: Instant::now(), current });
        Ok(Self { resolv_conf, hosts, limit, last })
    }

    /// The configuration in use. Reads the files again once [`MIN_READ_INTERVAL`] has passed.
    pub(super) fn current(&self, now: Instant) -> Arc<Current> {
        let mut last = self.last.lock();
        if now.saturating_duration_since(last.read_at) >= MIN_READ_INTERVAL {
            last.read_at = now;
            let texts = read(&self.resolv_conf, &self.hosts);
            if texts != last.texts
                && let Ok(current) = Current::of(&texts, self.limit)
            {
                last.current = Arc::new(current);
                last.texts = texts;
            }
        }
        Arc::clone(&last.current)
    }

    pub(super) fn notice(&self) -> Option<String> {
        self.last.lock().current.notice.clone()
    }
}

fn read(resolv_conf: &PathBuf, hosts: &PathBuf) -> Texts {
    let resolv_conf =
        fs::read(resolv_conf).map_err(|error| format!("{} cannot be read: {error}", resolv_conf.display()));
    Texts { resolv_conf, hosts: fs::read(hosts).ok() }
}

impl Current {
    fn of(texts: &Texts, limit: Duration) -> Result<Self, NetError> {
        let servers = texts.resolv_conf.as_ref().map_err(Clone::clone).and_then(|text| parse_servers(text));
        let (servers, notice) = match servers {
            Ok(servers) => (servers, None),
            Err(why) => {
                let notice = format!("{why}; names are asked of {FALLBACK_SERVER} (egress.name_servers names others)");
                (vec![name_server(FALLBACK_SERVER)], Some(notice))
            }
        };
        let mut hosts = Hosts::default();
        if let Some(text) = &texts.hosts {
            // Only bytes that are not UTF-8 could fail, and they are replaced.
            let _ = hosts.read_hosts_conf(String::from_utf8_lossy(text).as_bytes());
        }
        Ok(Self { clients: clients(servers, limit)?, hosts, notice })
    }

    /// The addresses that the hosts file has for a name, if any.
    pub(super) fn of_hosts(&self, name: &Name) -> Option<Arc<[IpAddr]>> {
        let families = [RecordType::A, RecordType::AAAA];
        let found = families.map(|family| self.hosts.lookup_static_host(&Query::query(name.clone(), family)));
        let records = found.iter().flatten().flat_map(|lookup| lookup.answers().iter());
        let addresses: Arc<[_]> = records.filter_map(|record| record.data.ip_addr()).collect();
        (!addresses.is_empty()).then_some(addresses)
    }
}

/// Reads the lines that name servers. The others are not used, and a search domain that is no name would refuse them all.
fn parse_servers(resolv_conf: &[u8]) -> Result<Vec<NameServerConfig>, String> {
    let lines = resolv_conf.split_inclusive(|byte| *byte == b'\n');
    let lines: Vec<_> = lines.filter(|line| line.trim_ascii_start().starts_with(b"nameserver")).collect();
    let (config, _) =
        parse_resolv_conf(lines.concat()).map_err(|error| format!("resolv.conf is of no use: {error}"))?;
    Ok(config.name_servers().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("egress-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[tokio::test]
    async fn hosts_are_read_in_any_case_with_all_their_addresses() {
        let text = b"# none\n127.0.0.1\tlocalhost Box # not-this\n::1 localhost\nnonsense x\n10.0.0.1\n\xff\n\
            10.0.0.2 my_service\n10.0.0.3 my_service\r\n";
        let texts = Texts { resolv_conf: Err("none".to_owned()), hosts: Some(text.to_vec()) };
        let current = Current::of(&texts, Duration::from_secs(1)).unwrap();
        for (host, addresses) in [
            ("localhost.", &["127.0.0.1", "::1"][..]),
            ("box.", &["127.0.0.1"]),
            ("my_service.", &["10.0.0.2", "10.0.0.3"]),
        ] {
            let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(current.of_hosts(&name(host)).as_deref(), Some(&addresses[..]), "{host}");
        }
        for host in ["x.", "not-this.", "none."] {
            assert_eq!(current.of_hosts(&name(host)), None, "{host}");
        }
    }

    #[test]
    fn only_the_lines_that_name_servers_are_read() {
        let label = "a".repeat(64);
        for other in [
            format!("search {label}.example corp.example"),
            format!("domain {label}"),
            "search a..b".to_owned(),
            "options ndots:x timeout".to_owned(),
            "sortlist 130.155.160.0/255.255.240.0/1".to_owned(),
            "# nameserver 192.0.2.9".to_owned(),
            "nonsense \u{fe}".to_owned(),
        ] {
            let text = format!("{other}\nnameserver 192.0.2.1\n{other}\nnameserver 2001:db8::1 # second\n{other}");
            let servers = parse_servers(text.as_bytes()).unwrap();
            let servers: Vec<_> = servers.iter().map(|server| server.ip.to_string()).collect();
            assert_eq!(servers, ["192.0.2.1", "2001:db8::1"], "{other}");
        }
    }

    #[tokio::test]
    async fn without_a_usable_resolv_conf_the_notice_says_so_and_who_is_asked() {
        let folder = folder("notice");
        for (text, why) in [(None, "cannot be read: "), (Some("# nothing\n"), "resolv.conf is of no use: ")] {
            let file = folder.join("resolv.conf");
            let _ = fs::remove_file(&file);
            text.inspect(|text| fs::write(&file, text).unwrap());
            let notice = System::of(file, folder.join("hosts"), Duration::from_secs(1)).unwrap().notice().unwrap();
            let end = "; names are asked of 127.0.0.1:53 (egress.name_servers names others)";
            assert!(notice.contains(why) && notice.ends_with(end), "{notice}");
        }
        fs::write(folder.join("good"), "nameserver 192.0.2.1\nsearch corp.example\n").unwrap();
        let good = System::of(folder.join("good"), folder.join("hosts"), Duration::from_secs(1)).unwrap();
        assert_eq!(good.notice(), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn a_change_of_the_files_is_seen_without_a_restart() {
        let folder = folder("change");
        let hosts = folder.join("hosts");
        fs::write(&hosts, "192.0.2.1 a.example\n").unwrap();
        let system = System::of(folder.join("resolv.conf"), hosts.clone(), Duration::from_secs(1)).unwrap();
        fs::write(&hosts, "192.0.2.2 a.example\n").unwrap();
        let now = Instant::now();
        let address = |at| system.current(at).of_hosts(&name("a.example.")).unwrap()[0].to_string();
        assert_eq!(address(now), "192.0.2.1");
        assert_eq!(address(now + MIN_READ_INTERVAL * 2), "192.0.2.2");
        fs::remove_dir_all(folder).unwrap();
    }
}
