//! The receivers: one lean HTTPS server in a process of its own. The path says what it does with a request: `/ok/GROUP`,
//! `/hang/GROUP`, or `/unread/GROUP`, which answers immediately and never reads the body.

mod serve;

use std::{path::PathBuf, time::Duration};

use end_to_end::wait::eventually;

pub(crate) use serve::serve;

use crate::{child::Child, latencies::Latencies};

/// The receivers, as the measurements see them.
pub(crate) struct Sink {
    child: Child,
    port: u16,
    /// The certificate to trust.
    pub(crate) ca: PathBuf,
}

impl Sink {
    pub(crate) fn start(name: &str) -> Self {
        let ca = std::env::temp_dir().join(format!("bench-{}-{name}.pem", std::process::id()));
        let (child, port) = Child::start("sink", &[ca.display().to_string()]);
        Self { child, port: port.parse().expect("it says its port"), ca }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// The number of requests since the start.
    pub(crate) fn requests(&self) -> u64 {
        self.child.ask("requests").parse().expect("a number")
    }

    /// Waits until this many requests have come since the start.
    pub(crate) async fn wait_for(&self, requests: u64, deadline: Duration) {
        let what = format!("{requests} requests have arrived");
        eventually(&what, deadline, || async { (self.requests() >= requests).then_some(()) }).await;
    }

    /// The number of requests of a group since it was last taken.
    pub(crate) fn arrived(&self, group: &str) -> u64 {
        self.child.ask(&format!("arrived {group}")).parse().expect("a number")
    }

    /// Returns and forgets the latencies of a group since it was last taken.
    pub(crate) fn take(&self, group: &str) -> Latencies {
        let answer = self.child.ask(&format!("take {group}"));
        let microseconds = answer.split_whitespace().map(|number| number.parse::<u32>().expect("a number"));
        Latencies::new(microseconds.map(|microseconds| f64::from(microseconds) / 1000.0).collect())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ca);
    }
}
