//! Stamps webhooks that may have jobs in the slow lane: lost-job detection leaves these alone.

use std::{collections::HashMap, time::Duration};

use domain::WebhookId;
use ledger::{Ledger, LedgerError};
use tokio::{sync::Mutex, time::Instant};

/// How long a stamp serves before it is renewed. Lost-job detection accepts much older ones.
const FRESH: Duration = Duration::from_secs(10);
/// How many stamps this process remembers, about.
const REMEMBERED: usize = 10_000;

/// The stamps that this process set lately.
#[derive(Default)]
pub(crate) struct Stamps(Mutex<HashMap<WebhookId, Instant>>);

impl Stamps {
    /// Stamps the webhooks that this process has not stamped lately. One call runs at a time, as several may name the
    /// same ones. A call without webhooks, as for each batch of the main lane, does not wait.
    ///
    /// # Errors
    /// When the database does not answer.
    pub(crate) async fn set(&self, ledger: &Ledger, webhooks: &[WebhookId]) -> Result<(), LedgerError> {
        if webhooks.is_empty() {
            return Ok(());
        }
        let mut set = self.0.lock().await;
        let now = Instant::now();
        let is_stale = |webhook: &WebhookId| set.get(webhook).is_none_or(|at| now - *at >= FRESH);
        let stale: Vec<_> = webhooks.iter().copied().filter(is_stale).collect();
        if stale.is_empty() {
            return Ok(());
        }
        ledger.slow_stamp(&stale).await?;
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
