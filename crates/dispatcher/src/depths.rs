//! Measures how many messages wait on the queues.

use std::time::Duration;

use broker::{Broker, BrokerError};
use domain::error_chain;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{lane::LaneKind, metrics::Metrics};

/// Often enough for a graph. Each look costs a round trip for each queue.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Sets the depths of all queues until `stop`. A gauge keeps its value while nobody knows a queue's depth.
pub(crate) async fn show(broker: Broker, gaps: Vec<Duration>, metrics: Metrics, stop: CancellationToken) {
    let names = broker.names();
    let with_gauge = |queue: String| {
        let label = names.unprefixed(&queue);
        let gauge = metrics.queue_depth(label.strip_prefix("events.").unwrap_or(label).to_owned());
        (queue, gauge)
    };
    let lanes = LaneKind::ALL.map(|kind| (kind.queue(names), metrics.depth.of(kind).clone()));
    let others =
        [names.events(), names.rejected(), names.unreadable(), names.dead(), names.unroutable(), names.notices()];
    let queues: Vec<_> = lanes.into_iter().chain(others.map(with_gauge)).collect();
    let retries: Vec<_> = gaps.iter().map(|gap| with_gauge(names.retry(*gap))).collect();
    let mut look = interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        loop {
            look.tick().await;
            // RabbitMQ counts zero messages of a queue whose leader is silent, and an alert would resolve by it.
            for (queue, gauge) in &queues {
                set(gauge, queue, broker.depth_shown(queue).await);
            }
            // Retries pass no alert, and one that is taken for a look would be counted as delivered.
            for (queue, gauge) in &retries {
                set(gauge, queue, broker.depth(queue).await);
            }
        }
    };
    stop.run_until_cancelled(looking).await;
    broker.depths_close().await;
}

fn set(gauge: &Gauge, queue: &str, depth: Result<Option<u32>, BrokerError>) {
    match depth {
        Ok(Some(depth)) => drop(gauge.set(depth.into())),
        Ok(None) => tracing::debug!(queue, "no depth of a queue: it is missing"),
        Err(error) => tracing::debug!(queue, error = error_chain(&error), "no depth of a queue"),
    }
}
