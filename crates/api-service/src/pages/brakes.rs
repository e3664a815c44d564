//! Says whether dispatchers accept no jobs, for the console's pages.

use std::time::Duration;

use console::BrakeCause;
use ledger::Ledger;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// The interval at which the ledger is read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the brakes until `stop`. Those that were read last count while the ledger is unavailable.
pub(crate) async fn watch(ledger: Ledger, seen: watch::Sender<Option<BrakeCause>>, stop: CancellationToken) {
    let reading = async {
        loop {
            if let Ok(brakes) = ledger.brakes().await {
                let worst = brakes
                    .first()
                    .map(|first| if first.is_operators() { BrakeCause::Operator } else { BrakeCause::Fault });
                seen.send_replace(worst);
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    stop.run_until_cancelled(reading).await;
}
