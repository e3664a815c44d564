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

/// Sets the depths of all queues until `stop`. A gauge keeps its value while the broker does not answer.
pub(crate) async fn show(broker: Broker, gaps: Vec<Duration>, metrics: Metrics, stop: CancellationToken) {
    let names = broker.names();
    let mut queues: Vec<(String, Gauge)> =
        LaneKind::ALL.map(|kind| (kind.queue(names), metrics.depth.of(kind))).to_vec();
    let others = [names.events(), names.rejected(), names.dead(), names.unroutable(), names.notices()];
    for queue in others.into_iter().chain(gaps.iter().map(|gap| names.retry(*gap))) {
        let gauge = metrics.queue_depth(label(names.unprefixed(&queue)));
        queues.push((queue, gauge));
    }
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        loop {
            look.tick().await;
            for (queue, gauge) in &queues {
                match broker.depth(queue).await {
                    Ok(depth) => {
                        gauge.set(depth.unwrap_or_default().into());
                    }
                    Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "no depth of a queue"),
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
