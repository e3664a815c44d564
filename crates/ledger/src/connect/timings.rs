//! How long the ledger's calls take.

use std::time::Duration;

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

/// Upper bounds in seconds. A call of `delivery` takes a few milliseconds, none over 20 s.
const BUCKETS_SECONDS: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0];

/// The durations of calls, by the name of the function that makes them. All clones share them.
#[derive(Clone)]
pub(crate) struct Timings(Family<[(&'static str, &'static str); 1], Histogram>);

impl Default for Timings {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(BUCKETS_SECONDS)))
    }
}

/// Observes how long a call takes, until it is dropped: also one that is given up.
pub(crate) struct Timing<'t> {
    timings: &'t Timings,
    call: &'static str,
    begun: Instant,
}

impl Timings {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "webhooks_ledger_call_seconds",
            "How long calls of the ledger held a connection, by the function that made them",
            self.0.clone(),
        );
    }

    /// Starts to time a call.
    pub(crate) fn begin(&self, call: &'static str) -> Timing<'_> {
        Timing { timings: self, call, begun: Instant::now() }
    }

    fn observe(&self, call: &'static str, took: Duration) {
        self.0.get_or_create(&[("call", call)]).observe(took.as_secs_f64());
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.timings.observe(self.call, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_counted_by_its_name() {
        let (timings, mut registry) = (Timings::default(), Registry::default());
        timings.register(&mut registry);
        let call = async {
            let _timing = timings.begin("events_store");
            tokio::time::sleep(Duration::from_secs(60)).await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(3), call).await.is_err());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("webhooks_ledger_call_seconds_sum{call=\"events_store\"} 3"), "{text}");
    }

    /// Returns the files of this crate's sources.
    fn sources(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![fs::read_to_string(path).unwrap()],
            })
            .collect()
    }

    #[test]
    fn the_name_of_a_call_is_that_of_its_function() {
        let mut calls = 0;
        for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            let named = [".run(\"", ".transaction(\"", ".run_within(call_timeout, \""];
            for (at, _) in named.iter().flat_map(|call| code.match_indices(call)) {
                let name = code[at..].split('"').nth(1).unwrap();
                let (_, function) = code[..at].rsplit_once("fn ").unwrap();
                assert_eq!(name, function.split(['(', '<']).next().unwrap());
                calls += 1;
            }
        }
        assert!(calls > 100, "{calls} calls");
    }
}
