//! How many messages wait for each lane, looked at now and then.

use std::time::Duration;

use broker::Broker;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{lane::Which, metrics::ByLane};

/// Often enough for a graph; a question to the broker costs a round trip.
const EVERY: Duration = Duration::from_secs(5);

/// Shows the depths until `stop`. A broker that is away leaves the last ones standing.
pub(crate) async fn show(broker: Broker, gauge: ByLane, stop: CancellationToken) {
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        loop {
            look.tick().await;
            for which in Which::BOTH {
                match broker.depth(&which.queue(broker.names())).await {
                    Ok(depth) => {
                        gauge.of(which).set(depth.unwrap_or_default().into());
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
