//! Whether this process can do its work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long one check may take.
const PATIENCE: Duration = Duration::from_secs(2);

type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The named checks that `/readyz` runs. A clone runs the same checks.
#[derive(Clone, Default)]
pub struct Readiness {
    checks: Vec<(&'static str, Probe)>,
    draining: Option<CancellationToken>,
}

/// What the checks found; serialized, it is the body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadinessReport {
    /// Whether every check passed.
    pub ready: bool,
    /// `ok` or what is wrong, by check.
    pub checks: BTreeMap<&'static str, String>,
}

impl Readiness {
    /// No checks: always ready.
    #[must_use]
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

    /// Makes the process not ready once `token` is cancelled, when shutdown begins, so that it gets no new work.
    #[must_use]
    pub fn draining(mut self, token: CancellationToken) -> Self {
        self.draining = Some(token);
        self
    }

    /// Runs all checks at the same time. While the process drains, none is run.
    pub async fn report(&self) -> ReadinessReport {
        if self.draining.as_ref().is_some_and(CancellationToken::is_cancelled) {
            let checks = BTreeMap::from([("process", "shutting down".to_owned())]);
            return ReadinessReport { ready: false, checks };
        }
        let found = join_all(self.checks.iter().map(|(name, probe)| async move {
            let fault = match timeout(PATIENCE, probe()).await {
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some(fault),
                Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            (*name, fault)
        }))
        .await;
        ReadinessReport {
            ready: found.iter().all(|(_, fault)| fault.is_none()),
            checks: found.into_iter().map(|(name, fault)| (name, fault.unwrap_or_else(|| "ok".to_owned()))).collect(),
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

    #[tokio::test]
    async fn one_failed_check_makes_the_process_not_ready() {
        let readiness = Readiness::new()
            .check("database", || async { Ok(()) })
            .check("broker", || async { Err("not connected".to_owned()) });
        let report = readiness.report().await;
        assert!(!report.ready);
        assert_eq!(said(&report), [("broker", "not connected"), ("database", "ok")]);
    }

    #[tokio::test(start_paused = true)]
    async fn checks_that_hang_fail_after_two_seconds_all_together() {
        let readiness = Readiness::new().check("broker", pending).check("database", pending).check("slow", || async {
            sleep(Duration::from_millis(1_900)).await;
            Ok(())
        });
        let begin = Instant::now();
        let report = readiness.report().await;
        assert!((PATIENCE..Duration::from_millis(2_100)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert!(!report.ready);
        let late = "no answer within 2 s";
        assert_eq!(said(&report), [("broker", late), ("database", late), ("slow", "ok")]);
    }

    #[tokio::test]
    async fn a_process_that_shuts_down_is_not_ready_whatever_its_checks_say() {
        let shutdown = CancellationToken::new();
        let readiness = Readiness::new().check("database", || async { Ok(()) }).draining(shutdown.clone());
        assert!(readiness.report().await.ready);
        shutdown.cancel();
        let report = readiness.report().await;
        assert!(!report.ready);
        assert_eq!(said(&report), [("process", "shutting down")]);
    }
}
