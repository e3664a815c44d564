//! The resources that the process uses, under the names that Prometheus' own libraries give them (on Linux only), and its
//! connections to the database.

use std::{
    fmt, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use ledger::{Connections, Ledger};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use crate::process::descriptor_limit;

/// The kernel counts the time of processes in these, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Shows what the process takes, and the connections of all pools to the ledger's database, as they are when the metrics
/// are read.
pub(crate) fn show(ledger: &Ledger, registry: &mut Registry) {
    // Not from `/proc`: a hardened unit hides the machine's time of boot, which the kernel's figure counts from.
    let started = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    registry.register_collector(Box::new(Usage { ledger: ledger.clone(), started }));
}

struct Usage {
    ledger: Ledger,
    /// When the process started, in Unix time.
    started: Option<f64>,
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Usage")
    }
}

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let help = "CPU time that this process has taken, in seconds";
            let encoder = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(encoder)?;
        }
        let Connections { most, open, in_use, wanted } = self.ledger.connections();
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory that this process has in use", memory()),
            ("process_open_fds", "Files and sockets that this process has open", open_files()),
            ("process_max_fds", "Maximum of files and sockets that this process may have open", most_files()),
            ("process_start_time_seconds", "When this process started, in Unix time", self.started),
            ("webhooks_database_connections_max", "Maximum of connections to the database", number(most)),
            ("webhooks_database_connections", "Connections to the database", number(open)),
            ("webhooks_database_connections_in_use", "Connections to the database that are in use", number(in_use)),
            (
                "webhooks_database_connections_wanted",
                "Calls that wait for a connection to the database",
                number(wanted),
            ),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}

fn number(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    // The 14th and the 15th field: user and system time.
    let ticks: f64 = after.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<_, _>>().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

fn memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(resident.trim().parse::<f64>().ok()? * 1024.0)
}

fn open_files() -> Option<f64> {
    number(fs::read_dir("/proc/self/fd").ok()?.count())
}

fn most_files() -> Option<f64> {
    number(usize::try_from(descriptor_limit()?).ok()?)
}

#[cfg(test)]
mod tests {
    use ledger::LedgerConfig;

    use super::*;

    /// A ledger that is not connected.
    fn ledger() -> Ledger {
        let url = "postgres://nobody@127.0.0.1:1/nothing".to_owned();
        let (password_file, max_connections, application_name) = (None, 3, "test");
        let (call_timeout, tls) = (ledger::CALL_TIMEOUT, tls::ClientFiles::default());
        Ledger::new(&LedgerConfig { url, password_file, tls, max_connections, application_name, call_timeout }).unwrap()
    }

    fn shown() -> std::collections::HashMap<String, f64> {
        let mut registry = Registry::default();
        show(&ledger(), &mut registry);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(' ').unwrap());
        samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    #[tokio::test]
    async fn a_process_shows_what_it_takes() {
        let before = shown();
        let work: Vec<u64> = (0..5_000_000).map(|n: u64| n.wrapping_mul(n)).collect();
        let after = shown();
        let grown = |name: &str| after[name] - before[name];
        assert!(grown("process_resident_memory_bytes") > 30e6, "{} numbers are 40 MB: {after:?}", work.len());
        assert!(grown("process_cpu_seconds_total") > 0.0, "{after:?}");
        let _file = fs::File::open("/proc/self/stat").unwrap();
        assert!(shown()["process_open_fds"] > 3.0, "{after:?}");
        assert!(after["process_max_fds"] >= 64.0, "{after:?}");
        assert_eq!(
            ["_max", "", "_in_use", "_wanted"].map(|name| after[&format!("webhooks_database_connections{name}")]),
            [3.0, 0.0, 0.0, 0.0]
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((0.0..600.0).contains(&(now - after["process_start_time_seconds"])), "{now} {after:?}");
    }

    /// Hardened units see nothing else there (`ProcSubset=pid`).
    #[test]
    fn of_proc_only_the_process_itself_is_read() {
        let code = include_str!("usage.rs").split("#[cfg(test)]").next().unwrap();
        let read: Vec<_> = code.match_indices("\"/proc/").map(|(at, _)| &code[at + 1..]).collect();
        assert!(read.len() >= 3 && read.iter().all(|path| path.starts_with("/proc/self/")), "{read:?}");
    }
}
