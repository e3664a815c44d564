//! Quotas of which no webhook and no tenant holds more than a share: slots for attempts, and memory for long bodies.

use std::sync::Arc;

use domain::{TenantId, WebhookId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::lane::{
    refusal::Refusal,
    share::{Share, Shares},
};

/// The webhook and the tenant of an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) webhook: WebhookId,
    pub(crate) tenant: TenantId,
}

/// A limit for all, with a share for each webhook and each tenant.
pub(crate) struct Quota {
    all: Arc<Semaphore>,
    whole: u32,
    /// The refusal when the whole is taken.
    full: Refusal,
    of_webhooks: Arc<Shares<WebhookId>>,
    of_tenants: Arc<Shares<TenantId>>,
}

/// A part of a quota. Dropping it releases the part.
pub(crate) struct Permit {
    _webhook: Share<WebhookId>,
    _tenant: Share<TenantId>,
    _whole: OwnedSemaphorePermit,
}

impl Quota {
    /// Each share is at least 1.
    pub(crate) fn new(whole: u32, of_webhook: u32, of_tenant: u32, full: Refusal) -> Self {
        Self {
            all: Arc::new(Semaphore::new(usize::try_from(whole).unwrap_or(usize::MAX))),
            whole,
            full,
            of_webhooks: Shares::new(of_webhook),
            of_tenants: Shares::new(of_tenant),
        }
    }

    pub(crate) const fn whole(&self) -> u32 {
        self.whole
    }

    /// Returns true if less than half is left.
    pub(crate) fn is_scarce(&self) -> bool {
        self.all.available_permits() * 2 < usize::try_from(self.whole).unwrap_or(usize::MAX)
    }

    /// Returns true if less than a quarter is left.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.all.available_permits() * 4 < usize::try_from(self.whole).unwrap_or(usize::MAX)
    }

    /// Returns true if less than a quarter is left, and the webhook has some: the rest is for others.
    pub(crate) fn is_for_others(&self, owner: Owner) -> bool {
        self.is_nearly_full() && self.of_webhooks.has_users(owner.webhook)
    }

    /// Returns true if less than half is left, or a last part of the webhook's or the tenant's share: it is for held jobs.
    pub(crate) fn is_for_held(&self, owner: Owner) -> bool {
        self.is_scarce() || self.of_webhooks.is_last(owner.webhook) || self.of_tenants.is_last(owner.tenant)
    }

    /// Waits for its share of the webhook, of the tenant, and of the whole. All wait in this order, so there is no deadlock.
    ///
    /// # Errors
    /// What it waited for in vain.
    pub(crate) async fn acquire(&self, owner: Owner, amount: u32, until: Instant) -> Result<Permit, Refusal> {
        let mut lack = Refusal::Webhook;
        let acquiring = async {
            let webhook = self.of_webhooks.acquire(owner.webhook, amount).await;
            lack = Refusal::Tenant;
            let tenant = self.of_tenants.acquire(owner.tenant, amount).await;
            lack = self.full;
            match Arc::clone(&self.all).acquire_many_owned(amount.min(self.whole)).await {
                Ok(whole) => Permit { _webhook: webhook, _tenant: tenant, _whole: whole },
                Err(_) => unreachable!("no quota is ever closed"),
            }
        };
        timeout_at(until, acquiring).await.map_err(|_| lack)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// What is not left.
    pub(crate) fn try_acquire(&self, owner: Owner, amount: u32) -> Result<Permit, Refusal> {
        Ok(Permit {
            _webhook: self.of_webhooks.try_acquire(owner.webhook, amount).ok_or(Refusal::Webhook)?,
            _tenant: self.of_tenants.try_acquire(owner.tenant, amount).ok_or(Refusal::Tenant)?,
            _whole: Arc::clone(&self.all).try_acquire_many_owned(amount.min(self.whole)).map_err(|_| self.full)?,
        })
    }
}
