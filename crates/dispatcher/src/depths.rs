//! How many messages wait on queues, looked at now and then.

use std::time::Duration;

use broker::Broker;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{lane::LaneKind, metrics::Metrics};

/// Often enough for a graph; a question to the broker costs a round trip.
const EVERY: Duration = Duration::from_secs(5);

/// Shows the depths of the lanes, and of the queues that should be empty, until `stop`. A broker that is away leaves the
/// last ones standing.
pub(crate) async fn show(broker: Broker, metrics: Metrics, stop: CancellationToken) {
    let names = broker.names();
    let mut queues: Vec<(String, Gauge)> =
        LaneKind::ALL.map(|kind| (kind.queue(names), metrics.depth.of(kind))).to_vec();
    let should_be_empty = [("rejected", names.rejected()), ("dead", names.dead()), ("unroutable", names.unroutable())];
    queues.extend(should_be_empty.map(|(label, queue)| (queue, metrics.queue_depth(label))));
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
