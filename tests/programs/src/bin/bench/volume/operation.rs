//! Work on very many rows, and its effect on another tenant.

use std::time::{Duration, Instant};

use super::Volume;
use crate::{
    latencies::Latencies,
    latency::{percentiles, ratio},
    report::Figure,
};

const PER_SECOND: f64 = 200.0;
/// How long the other tenant is watched without the work: 4,000 events.
const QUIET_DURATION: Duration = Duration::from_secs(20);
/// The rows a second that the work has to do, at least.
const MIN_ROWS_PER_SECOND: f64 = 10_000.0;
/// The limit of a statement, in seconds.
pub(super) const MAX_STATEMENT_SECONDS: f64 = 1.0;
/// The limit of a call, in milliseconds.
pub(super) const MAX_CALL_MILLIS: f64 = 100.0;
/// How long published jobs may take to be delivered.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Some work, and how it is judged.
pub(super) struct Operation {
    /// Its name in the figures.
    pub(super) name: &'static str,
    /// The number of deliveries that it is about. Rows that it reads in vain do not count.
    pub(super) rows: u64,
    pub(super) others: Others,
}

/// The limit of the other tenant's 99th percentile meanwhile.
#[derive(Clone, Copy)]
pub(super) enum Others {
    /// A multiple of its value without the work.
    Times(f64),
    /// Milliseconds.
    Millis(f64),
}

pub(super) struct Worked {
    /// The part of it that was done in time.
    pub(super) done: f64,
    pub(super) seconds: f64,
    /// How long the call that asked for it took, in milliseconds.
    pub(super) call: Option<f64>,
}

impl Worked {
    /// The call was refused or not answered in time, so nothing happens.
    pub(super) fn refused(began: Instant) -> Self {
        let seconds = began.elapsed().as_secs_f64();
        Self { done: 0.0, seconds, call: Some(seconds * 1000.0) }
    }
}

impl Operation {
    /// Looks which part is done, until all is or the time is over: twice what `MIN_ROWS_PER_SECOND` allows, plus two minutes.
    pub(super) async fn watched(&self, began: Instant, done: impl AsyncFn() -> f64) -> Worked {
        #[expect(clippy::cast_precision_loss, reason = "some millions")]
        let patience = Duration::from_secs_f64(120.0 + 2.0 * self.rows as f64 / MIN_ROWS_PER_SECOND);
        loop {
            let done = done().await;
            if done >= 1.0 || began.elapsed() > patience {
                return Worked { done, seconds: began.elapsed().as_secs_f64(), call: None };
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Volume<'_> {
    /// Does the work. Measures the other tenant before it and beside it.
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    pub(super) async fn measured(&self, operation: &Operation, work: impl AsyncFnOnce() -> Worked) -> Vec<Figure> {
        // The last part must not make the other tenant look slow without the work.
        self.drained().await;
        self.environment.bench.settle().await;
        let without = self.environment.pace(&self.load, PER_SECOND, QUIET_DURATION).await;
        let mark = self.statements.mark();
        let (during, worked) = self.beside(work()).await;
        let (name, done) = (operation.name, operation.rows as f64 * worked.done);
        println!("  {name}: {done:.0} of {} rows in {:.1} s", operation.rows, worked.seconds);
        let mut figures = vec![
            Figure::new(format!("volume_{name}_ended"), worked.done, "of the rows").at_least(1.0),
            Figure::new(format!("volume_{name}_time"), worked.seconds, "seconds"),
            Figure::new(format!("volume_{name}_rate"), done / worked.seconds, "rows/s").at_least(MIN_ROWS_PER_SECOND),
        ];
        figures.extend(
            worked.call.map(|call| Figure::new(format!("volume_{name}_call"), call, "ms").at_most(MAX_CALL_MILLIS)),
        );
        figures.extend(of_other(operation, &without, &during));
        let longest = self.statements.longest_since(mark);
        figures.push(
            Figure::new(format!("volume_{name}_longest_statement"), longest, "seconds").at_most(MAX_STATEMENT_SECONDS),
        );
        figures
    }

    /// The other tenant's latencies while `work` runs.
    pub(super) async fn beside<T>(&self, work: impl Future<Output = T>) -> (Latencies, T) {
        self.environment.bench.paced_beside(self.load.clone(), "ok", PER_SECOND, work).await
    }

    /// Waits until the queues of due jobs are empty: what an operation has published burdens the other tenant until it
    /// is delivered.
    pub(super) async fn drained(&self) {
        let (names, began) = (&self.environment.system.names, Instant::now());
        loop {
            let mut waiting = 0;
            for queue in [names.main(), names.bulk(), names.slow()] {
                waiting += self.environment.ready(&queue).await;
            }
            if waiting == 0 {
                return;
            }
            if began.elapsed() > DRAIN_TIMEOUT {
                println!("  not all that was published is delivered after {DRAIN_TIMEOUT:?}");
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn of_other(operation: &Operation, without: &Latencies, during: &Latencies) -> Vec<Figure> {
    let name = format!("volume_{}_other", operation.name);
    let mut figures = percentiles(&format!("{name}_without"), without);
    let mut during_it = percentiles(&format!("{name}_during"), during);
    if let Others::Millis(most) = operation.others {
        during_it[1] = Figure::new(format!("{name}_during_p99"), during.percentile(0.99), "ms").at_most(most);
    }
    figures.extend(during_it);
    let times = ratio(&format!("{name}_ratio_p99"), during, without, 0.99);
    figures.push(match operation.others {
        Others::Times(most) => times.at_most(most),
        Others::Millis(_) => times,
    });
    figures
}
