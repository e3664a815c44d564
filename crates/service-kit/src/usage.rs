//! What the process takes of its machine, under the names that Prometheus' own libraries give it. On Linux only.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// The kernel counts the time of processes in these, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Shows what the process takes, as it is when the metrics are read.
pub(crate) fn show(registry: &mut Registry) {
    // Not from `/proc`: a hardened unit hides the machine's time of boot, which the kernel's figure counts from.
    let started = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    registry.register_collector(Box::new(Usage { started }));
}

#[derive(Debug)]
struct Usage {
    /// When the process started, in Unix time.
    started: Option<f64>,
}

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let about = ("process_cpu_seconds", "CPU time that this process has taken, in seconds");
            ConstCounter::new(seconds).encode(encoder.encode_descriptor(
                about.0,
                about.1,
                None,
                MetricType::Counter,
            )?)?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory that this process has in use", memory()),
            ("process_open_fds", "Files and sockets that this process has open", open_files()),
            ("process_max_fds", "The most files and sockets that this process may have open", most_files()),
            ("process_start_time_seconds", "When this process started, in Unix time", self.started),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}

/// A field of `/proc/self/stat`, by its number in `proc(5)`. Those before the third are not found.
fn field(number: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let (user, system) = (field(14)?, field(15)?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(resident.trim().parse::<f64>().ok()? * 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so many files open")]
fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn most_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> std::collections::HashMap<String, f64> {
        let mut registry = Registry::default();
        show(&mut registry);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(' ').unwrap());
        samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_process_shows_what_it_takes() {
        let before = shown();
        let work: Vec<u64> = (0..5_000_000).map(|n: u64| n.wrapping_mul(n)).collect();
        let after = shown();
        let grown = |name: &str| after[name] - before[name];
        assert!(grown("process_resident_memory_bytes") > 30e6, "{} numbers are 40 MB: {after:?}", work.len());
        assert!(grown("process_cpu_seconds_total") > 0.0, "{after:?}");
        let _file = fs::File::open("/proc/self/stat").unwrap();
        assert!(shown()["process_open_fds"] > 3.0, "{after:?}");
        assert!(after["process_max_fds"] >= 64.0, "{after:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((0.0..600.0).contains(&(now - after["process_start_time_seconds"])), "{now} {after:?}");
    }
}
