//! Stamps webhooks that may have jobs in the slow lane: lost-job detection leaves these alone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::WebhookId;
use ledger::LedgerError;
use tokio::{sync::Mutex, time::Instant};

use crate::{abandoned::Abandoned, shared::Shared};

/// How long a stamp serves before it is renewed. Lost-job detection accepts much older ones.
const FRESH: Duration = Duration::from_secs(10);
/// How many stamps this process remembers, about.
const REMEMBERED: usize = 10_000;

/// The stamps that this process set lately.
pub(crate) struct Stamps {
    shared: Arc<Shared>,
    set: Mutex<HashMap<WebhookId, Instant>>,
}

impl Stamps {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, set: Mutex::default() }
    }

    /// Stamps the webhooks that this process has not stamped lately. A call without webhooks, as for each batch of the
    /// main lane, does not wait.
    pub(crate) async fn set(&self, webhooks: &[WebhookId]) -> Result<(), Abandoned> {
        if webhooks.is_empty() {
            return Ok(());
        }
        self.shared.until_done("stamping webhooks", || self.try_set(webhooks)).await
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
        self.shared.ledger.slow_stamp(&stale).await?;
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
