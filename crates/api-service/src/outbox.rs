//! The transactional outbox: a job is added to it with the change that asks for it, published, and deleted from it.

use std::{error::Error, sync::Arc};

use broker::{Broker, Names, Outgoing, PublishError, Publisher};
use ledger::{Ledger, OutboxBatch};
use tokio::sync::Notify;

use crate::problem::ApiError;

/// Shared by the handlers and the relay.
#[derive(Clone)]
pub(crate) struct Outbox {
    ledger: Ledger,
    publisher: Publisher,
    names: Names,
    /// Jobs wait in the outbox that nobody publishes.
    pub(crate) unpublished: Arc<Notify>,
    /// A recovery was asked for.
    pub(crate) recoveries: Arc<Notify>,
    /// A webhook was activated.
    pub(crate) activations: Arc<Notify>,
    /// A webhook was deleted.
    pub(crate) cancellations: Arc<Notify>,
}

impl Outbox {
    pub(crate) fn new(ledger: Ledger, broker: &Broker, publisher: Publisher) -> Self {
        let names = broker.names().clone();
        let (unpublished, recoveries, activations, cancellations) =
            (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        Self { ledger, publisher, names, unpublished, recoveries, activations, cancellations }
    }

    /// The same over other connections.
    pub(crate) fn with(&self, ledger: Ledger) -> Self {
        Self { ledger, ..self.clone() }
    }

    /// Whether it is worth beginning something whose job has to be published.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.is_open() { Ok(()) } else { Err(ApiError::BrokerAway(PublishError::NotConnected)) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.publisher.check().is_ok()
    }

    /// Publishes jobs of the outbox and deletes those that the broker has confirmed.
    ///
    /// # Errors
    /// When one of the jobs is not known to be with the broker: it stays in the outbox.
    pub(crate) async fn publish(&self, batch: &OutboxBatch) -> Result<(), PublishError> {
        let (messages, jobs): (Vec<Outgoing>, Vec<_>) =
            self.names.messages_due(batch.jobs(), |job| *job).into_iter().unzip();
        let unconfirmed = self.publisher.publish(&messages).await.err();
        let published = match &unconfirmed {
            Some(unconfirmed) => {
                &batch.without(unconfirmed.places.iter().filter_map(|place| jobs.get(*place)).copied().flatten())
            }
            None => batch,
        };
        if !published.is_empty()
            && let Err(error) = self.ledger.outbox_delete(published).await
        {
            // They are published once more when their lease ends, and found stale.
            tracing::warn!(error = &error as &dyn Error, "published jobs could not be deleted from the outbox");
        }
        unconfirmed.map_or(Ok(()), |unconfirmed| Err(*unconfirmed.error))
    }
}
