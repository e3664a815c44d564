//! Measures how many messages wait on the queues.

use std::time::Duration;

use broker::Broker;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{lane::LaneKind, metrics::Metrics};

/// The label of a queue, by its name without the prefix.
fn label(queue: &str) -> String {
    queue.strip_prefix("events.").unwrap_or(queue).to_owned()
}

/// Often enough for a graph. Each look costs a round trip for each queue.
const EVERY: Duration = Duration::from_secs(5);

/// When a zero is one. RabbitMQ counts zero messages of a queue whose leader is silent, and an alert would resolve by it.
#[derive(Clone, Copy)]
enum Zero {
    /// Beside a consumer, or when no message can be had.
    Proven,
    /// Always: retries pass no alert, and one that is taken for a look would be counted as delivered.
    Believed,
}

/// Sets the depths of all queues until `stop`. A gauge keeps its value while nobody knows a queue's depth.
pub(crate) async fn show(broker: Broker, gaps: Vec<Duration>, metrics: Metrics, stop: CancellationToken) {
    let names = broker.names();
    let lanes = LaneKind::ALL.map(|kind| (kind.queue(names), Zero::Proven, metrics.depth.of(kind)));
    let events = [names.events(), names.other_keys()];
    let parked = [names.rejected(), names.unknown_key(), names.dead(), names.unroutable(), names.notices()];
    let others = events
        .into_iter()
        .chain(parked)
        .map(|queue| (queue, Zero::Proven))
        .chain(gaps.iter().map(|gap| (names.retry(*gap), Zero::Believed)));
    let with_gauge = |(queue, zero): (String, Zero)| {
        let gauge = metrics.queue_depth(label(names.unprefixed(&queue)));
        (queue, zero, gauge)
    };
    let queues: Vec<(String, Zero, Gauge)> = lanes.into_iter().chain(others.map(with_gauge)).collect();
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        loop {
            look.tick().await;
            for (queue, zero, gauge) in &queues {
                let depth = match zero {
                    Zero::Proven => broker.depth_shown(queue).await,
                    Zero::Believed => broker.depth(queue).await,
                };
                match depth {
                    Ok(Some(depth)) => {
                        gauge.set(depth.into());
                    }
                    Ok(None) => tracing::debug!(queue, "no depth of a queue: it is missing"),
                    Err(error) => {
                        tracing::debug!(queue, error = &error as &dyn std::error::Error, "no depth of a queue");
                    }
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = looking => {}
    }
    broker.depths_close().await;
}
