//! Stamps webhooks that may have jobs in the slow lane: lost-job detection leaves these alone.

use std::{collections::HashMap, time::Duration};

use domain::WebhookId;
use ledger::{Ledger, LedgerError};
use service_kit::connections::persist;
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

/// How long a stamp serves before it is renewed. Lost-job detection accepts much older ones.
const FRESH: Duration = Duration::from_secs(10);
/// How many stamps this process remembers, about.
const REMEMBERED: usize = 10_000;

/// The stamps that this process set lately.
pub(crate) struct Stamps {
    ledger: Ledger,
    set: Mutex<HashMap<WebhookId, Instant>>,
    abandon: CancellationToken,
}

impl Stamps {
    /// `abandon` is cancelled when the shutdown's deadline has passed.
    pub(crate) fn new(ledger: Ledger, abandon: CancellationToken) -> Self {
        Self { ledger, set: Mutex::default(), abandon }
    }

    /// Stamps the webhooks that this process has not stamped lately. Returns `None` when this was abandoned. A call
    /// without webhooks, as for each batch of the main lane, does not wait.
    pub(crate) async fn set(&self, webhooks: &[WebhookId]) -> Option<()> {
        if webhooks.is_empty() {
            return Some(());
        }
        persist("stamping webhooks", &self.abandon, || self.try_set(webhooks)).await
    }

    /// One call runs at a time, as several may name the same webhooks.
    async fn try_set(&self, webhooks: &[WebhookId]) -> Result<(), LedgerError> {
        let mut set = self.set.lock().await;
        let now = Instant::now();
        let is_stale = |webhook: &WebhookId| set.get(webhook).is_none_or(|at| now - *at >= FRESH);
        let stale: Vec<_> = webhooks.iter().copied().filter(is_stale).collect();
        if stale.is_empty() {
            return Ok(());
        }
        self.ledger.slow_stamp(&stale).await?;
        if set.len() + stale.len() > REMEMBERED {
            set.retain(|_, at| now - *at < FRESH);
        }
        if set.len() + stale.len() > REMEMBERED {
            set.clear();
        }
        set.extend(stale.into_iter().map(|webhook| (webhook, now)));
        Ok(())
    }
}
