//! How long the ledger's calls take.

use std::time::Duration;

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

/// Upper bounds in seconds. A call of the hot path takes a few milliseconds, none over 20 s.
const SECONDS: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0];

/// The durations of calls, by the name of the function that makes them. All clones share them.
#[derive(Clone)]
pub(crate) struct Timings(Family<[(&'static str, &'static str); 1], Histogram>);

impl Default for Timings {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(SECONDS)))
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

    /// Starts to time the call whose statements are of this type.
    pub(crate) fn begin<F>(&self) -> Timing<'_> {
        Timing { timings: self, call: function_of(std::any::type_name::<F>()), begun: Instant::now() }
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

/// The function in which a closure of this type's name stands, without the types that it is generic over.
fn function_of(closure: &'static str) -> &'static str {
    let path = closure.split("::{{closure}}").next().unwrap_or_default();
    let mut depth = 0;
    let generic = path.rfind(|c| {
        depth += i32::from(c == '>') - i32::from(c == '<');
        depth == 0
    });
    let path = if path.ends_with('>') { &path[..generic.unwrap_or_default()] } else { path };
    match path.rsplit("::").next() {
        Some(name) if !name.is_empty() => name,
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of<F: AsyncFnOnce()>(_: &F) -> &'static str {
        function_of(std::any::type_name::<F>())
    }

    struct Ledger;

    impl Ledger {
        async fn events_store<T>(&self, _: T) -> &'static str {
            name_of(&async || {})
        }
    }

    #[tokio::test]
    async fn a_call_has_the_name_of_its_function() {
        assert_eq!(Ledger.events_store(0).await, "events_store");
        assert_eq!(name_of(&async || {}), "a_call_has_the_name_of_its_function");
        for (path, name) in [
            ("ledger::hot::<impl ledger::pool::Ledger>::deliveries_load::{{closure}}::{{closure}}", "deliveries_load"),
            ("a::store<b::C<d::E>, f::G>::{{closure}}", "store"),
            ("<a::b>::{{closure}}", "unknown"),
        ] {
            assert_eq!(function_of(path), name);
        }
    }
}
