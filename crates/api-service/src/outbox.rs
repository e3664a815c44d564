//! The transactional outbox. The transaction that asks for a job adds it. The relay publishes the job, then deletes it.

pub(crate) mod relay;

use std::sync::Arc;

use broker::{Broker, Names, Outgoing, PublishError, Publisher};
use domain::{Notice, error_chain};
use ledger::{Ledger, LedgerError, OutboxBatch, PromisedJob};
use tokio::sync::Notify;

/// Held jobs are not published while more jobs than these wait on the slow queue: nobody would begin them.
const MAX_SLOW_QUEUE_JOBS: u32 = 1_000;
/// Recoveries wait while more messages than these wait on the bulk queue.
const MAX_BULK_QUEUE_MESSAGES: u32 = 10_000;

/// Wakes the outbox relay of this process when a request has committed work for it. The relay also polls by itself, for
/// the work of other processes.
#[derive(Clone, Default)]
pub(crate) struct Wakes {
    /// Notified when a test or a resend has added its job to the outbox.
    pub(crate) jobs: Arc<Notify>,
    /// Notified when a recovery begins.
    pub(crate) recoveries: Arc<Notify>,
    /// Notified when a webhook is activated.
    pub(crate) activations: Arc<Notify>,
    /// Notified when a webhook is deleted, or its waiting deliveries are cancelled.
    pub(crate) cancellations: Arc<Notify>,
}

/// The relay's access to the outbox and to the broker.
pub(crate) struct Outbox {
    ledger: Ledger,
    broker: Broker,
    publisher: Publisher,
    names: Names,
}

impl Outbox {
    pub(crate) fn new(ledger: Ledger, broker: &Broker, publisher: Publisher) -> Self {
        Self { ledger, broker: broker.clone(), publisher, names: broker.names().clone() }
    }

    /// Returns true while the broker confirms what is published, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.publisher.check().is_ok()
    }

    /// Returns true if dispatchers leave published jobs on the slow queue, as they do while none runs.
    pub(crate) async fn is_slow_crowded(&self) -> bool {
        self.is_ready_above(&self.names.slow(), MAX_SLOW_QUEUE_JOBS).await
    }

    /// The same for the bulk queue.
    pub(crate) async fn is_bulk_crowded(&self) -> bool {
        self.is_ready_above(&self.names.bulk(), MAX_BULK_QUEUE_MESSAGES).await
    }

    async fn is_ready_above(&self, queue: &str, most: u32) -> bool {
        let ready = self.broker.depth(queue).await;
        ready.is_ok_and(|ready| ready.is_some_and(|messages| messages > most))
    }

    /// Publishes jobs of the outbox and deletes those that the broker has confirmed. Those that had been delivered before they
    /// were held go as [`Outbox::publish_released`] publishes them: the process that released them has died.
    ///
    /// # Errors
    /// When the broker has not confirmed one of the jobs. That job stays in the outbox.
    pub(crate) async fn publish(&self, batch: &OutboxBatch) -> Result<(), PublishError> {
        let was_held = |promised: &PromisedJob| promised.delivery_count > 0;
        let (held, others): (Vec<PromisedJob>, Vec<PromisedJob>) = batch.jobs().iter().copied().partition(was_held);
        let others = self.names.messages_due(&others, |promised| promised.job).into_iter();
        self.publish_messages(batch, others.chain(self.released(&held)).collect()).await
    }

    /// The same for jobs of a recovery. They wait in the bulk lane, so that no new event waits behind them.
    ///
    /// # Errors
    /// As [`Outbox::publish`].
    pub(crate) async fn publish_recovered(&self, batch: &OutboxBatch) -> Result<(), PublishError> {
        self.publish_messages(batch, self.names.jobs_in_bulk(batch.jobs(), |promised| promised.job)).await
    }

    /// The same for jobs that were held. They wait in the slow lane, not in front of others.
    ///
    /// # Errors
    /// As [`Outbox::publish`].
    pub(crate) async fn publish_released(&self, batch: &OutboxBatch) -> Result<(), PublishError> {
        self.publish_messages(batch, self.released(batch.jobs())).await
    }

    fn released<'p>(&self, jobs: &'p [PromisedJob]) -> Vec<(Outgoing, &'p [PromisedJob])> {
        self.names.jobs_released(jobs, |promised| (promised.job, promised.delivery_count))
    }

    async fn publish_messages(
        &self,
        batch: &OutboxBatch,
        messages: Vec<(Outgoing, &[PromisedJob])>,
    ) -> Result<(), PublishError> {
        let (messages, jobs): (Vec<Outgoing>, Vec<_>) = messages.into_iter().unzip();
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
            // A relay publishes them again when their lease ends. Dispatchers skip the duplicates.
            tracing::warn!(error = error_chain(&error), "published jobs could not be deleted from the outbox");
        }
        unconfirmed.map_or(Ok(()), |unconfirmed| Err(*unconfirmed.error))
    }

    /// Publishes notices and notes those that the broker has confirmed, which it returns. The others are published when
    /// their lease ends.
    ///
    /// # Errors
    /// When what the broker has confirmed could not be noted.
    pub(crate) async fn publish_notices<'n>(&self, notices: &'n [Notice]) -> Result<Vec<&'n Notice>, LedgerError> {
        let messages: Vec<Outgoing> = notices.iter().map(|notice| self.names.notice(notice)).collect();
        // No longer than a lease, so that no relay publishes at the same time what is confirmed here.
        let unconfirmed = match self.publisher.publish(&messages).await {
            Ok(()) => Vec::new(),
            Err(unconfirmed) => {
                tracing::warn!(error = error_chain(&unconfirmed), "notices could not be published; they will be later");
                unconfirmed.places
            }
        };
        let is_confirmed = |(place, _): &(usize, &Notice)| !unconfirmed.contains(place);
        let published: Vec<&Notice> = notices.iter().enumerate().filter(is_confirmed).map(|(_, one)| one).collect();
        let ids: Vec<_> = published.iter().map(|notice| notice.notice_id).collect();
        self.ledger.notices_published(&ids).await?;
        Ok(published)
    }
}
