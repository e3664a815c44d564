//! The way of jobs to the dispatchers: promised in the ledger, published, kept.

use std::{error::Error, sync::Arc};

use broker::{Broker, Names, Outgoing, PublishError, Publisher};
use ledger::{Ledger, Promised};
use tokio::sync::Notify;

use crate::problem::ApiError;

/// Shared by handlers and keeper.
#[derive(Clone)]
pub(crate) struct Outbox {
    ledger: Ledger,
    publisher: Publisher,
    names: Names,
    /// Promises wait that nobody is at.
    pub(crate) promises: Arc<Notify>,
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
        let (promises, recoveries, activations, cancellations) =
            (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        Self { ledger, publisher, names, promises, recoveries, activations, cancellations }
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

    /// Publishes promised jobs and forgets the promises of those that the broker has.
    ///
    /// # Errors
    /// When one of the jobs is not known to be with the broker: its promise stands.
    pub(crate) async fn publish(&self, promised: &Promised) -> Result<(), PublishError> {
        let (messages, jobs): (Vec<Outgoing>, Vec<_>) =
            self.names.messages_due(promised.jobs(), |job| *job).into_iter().unzip();
        let unconfirmed = self.publisher.publish(&messages).await.err();
        let published = match &unconfirmed {
            Some(unconfirmed) => {
                &promised.without(unconfirmed.places.iter().filter_map(|place| jobs.get(*place)).copied().flatten())
            }
            None => promised,
        };
        if !published.is_empty()
            && let Err(error) = self.ledger.promises_keep(published).await
        {
            // They are published once more when their lease ends, and found stale.
            tracing::warn!(error = &error as &dyn Error, "promises could not be kept, though their jobs are published");
        }
        unconfirmed.map_or(Ok(()), |unconfirmed| Err(*unconfirmed.error))
    }
}
