//! Whether this process can do its work.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Gauges, Register};

/// How long one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// What a check says that passed.
const PASSED: &str = "ok";

type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The named checks that `/readyz` runs. A clone runs the same checks.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Vec<(&'static str, Probe)>,
    optional: Option<&'static str>,
    draining: Option<CancellationToken>,
    /// The gauges of the last report.
    shown: (Gauge, Gauges),
}

/// What the checks found; serialized, it is the body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadinessReport {
    /// True if every check passed that is not optional.
    pub ready: bool,
    /// `ok` or what is wrong, by check.
    pub checks: BTreeMap<&'static str, String>,
}

impl Readiness {
    /// No checks: always ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check. Its error is published, so it must name no credential. A check that takes over 2 s has failed.
    #[must_use]
    pub fn check<P, F>(mut self, name: &'static str, probe: P) -> Self
    where
        P: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.checks.push((name, Arc::new(move || Box::pin(probe()))));
        self
    }

    /// Keeps the process ready while this check fails. `/readyz` and the metrics show the failure.
    #[must_use]
    pub const fn optional(mut self, name: &'static str) -> Self {
        self.optional = Some(name);
        self
    }

    /// Makes the process not ready once `token` is cancelled, when shutdown begins, so that it gets no new work.
    #[must_use]
    pub fn draining(mut self, token: CancellationToken) -> Self {
        self.draining = Some(token);
        self
    }

    /// Shows what the last report said in `registry`.
    #[must_use]
    pub fn shown(mut self, registry: &mut Registry) -> Self {
        let ready = registry.shown("webhooks_ready", "Whether this process can do its work", Gauge::default());
        let help = "Whether a check of this process's readiness passed";
        self.shown = (ready, registry.shown("webhooks_ready_check", help, Gauges::default()));
        self
    }

    /// Runs all checks at the same time. While the process drains, none is run.
    pub async fn report(&self) -> ReadinessReport {
        let report = self.run_checks().await;
        let (ready, checks) = &self.shown;
        ready.set(report.ready.into());
        for (name, _) in &self.checks {
            let passed = report.checks.get(name).is_some_and(|said| said == PASSED);
            checks.get_or_create(&[("check", *name)]).set(passed.into());
        }
        report
    }

    async fn run_checks(&self) -> ReadinessReport {
        if self.draining.as_ref().is_some_and(CancellationToken::is_cancelled) {
            let checks = BTreeMap::from([("process", "shutting down".to_owned())]);
            return ReadinessReport { ready: false, checks };
        }
        let found = join_all(self.checks.iter().map(|(name, probe)| async move {
            let fault = match timeout(CHECK_TIMEOUT, probe()).await {
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some(fault),
                Err(_) => Some(format!("no answer within {} s", CHECK_TIMEOUT.as_secs())),
            };
            (*name, fault)
        }))
        .await;
        ReadinessReport {
            ready: found.iter().all(|(name, fault)| fault.is_none() || self.optional == Some(*name)),
            checks: found.into_iter().map(|(name, fault)| (name, fault.unwrap_or_else(|| PASSED.to_owned()))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn said(report: &ReadinessReport) -> Vec<(&str, &str)> {
        report.checks.iter().map(|(name, fault)| (*name, fault.as_str())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn checks_that_hang_fail_after_two_seconds_all_together() {
        let readiness = Readiness::new().check("broker", pending).check("database", pending).check("slow", || async {
            sleep(Duration::from_millis(1_900)).await;
            Ok(())
        });
        let begin = Instant::now();
        let report = readiness.report().await;
        assert!((CHECK_TIMEOUT..Duration::from_millis(2_100)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert!(!report.ready);
        let late = "no answer within 2 s";
        assert_eq!(said(&report), [("broker", late), ("database", late), ("slow", "ok")]);
    }

    #[tokio::test]
    async fn an_optional_check_is_shown_and_keeps_the_process_ready() {
        let readiness =
            Readiness::new().optional("broker").check("broker", || async { Err("not connected".to_owned()) });
        let report = readiness.clone().check("database", || async { Ok(()) }).report().await;
        assert!(report.ready);
        assert_eq!(said(&report), [("broker", "not connected"), ("database", "ok")]);
        assert!(!readiness.check("database", || async { Err("unavailable".to_owned()) }).report().await.ready);
    }
}
