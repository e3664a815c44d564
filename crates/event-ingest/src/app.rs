//! Builds, runs and stops the service.

use std::{
    future::ready,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{Attachment, BatchLimit, Broker, Prefetch, Subscription};
use domain::RetrySchedule;
use ledger::Ledger;
use prometheus_client::registry::Registry;
use service_kit::{
    DatabaseWatch, OpsError, OpsServer, Settings, SettingsError,
    connections::{self, SchemaTooOld},
    settings::{Reconcile, Retention},
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use upkeep::Upkeep;

use crate::{acks::Acks, flood::Flood, high_load::HighLoad, intake::Intake, metrics::Metrics, turns::Turns};

/// How long a batch waits for more events while they come faster than that. Their jobs then reach a dispatcher
/// together, so that it need not wait for more itself.
const LINGER: Duration = Duration::from_millis(3);
/// Bytes of bodies in one batch. Memory holds each batch that is under way, a few times over on its way to the ledger.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
const OPS_PORT: u16 = 9082;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A setting is missing or cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The operations port cannot be opened.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The database's schema is too old.
    #[error(transparent)]
    Schema(#[from] SchemaTooOld),
}

/// The service: built, then run.
pub struct App {
    ops: OpsServer,
    ledger: Ledger,
    broker: Broker,
    batch: u16,
    prefetch: Prefetch,
    data_limit: usize,
    high_load: u32,
    flood: u32,
    deadline: Duration,
    schedule: RetrySchedule,
    reconcile: Reconcile,
    retention: Retention,
}

impl App {
    /// Checks the settings and takes the operations port. Neither the database nor the broker has to be there yet.
    ///
    /// # Errors
    /// [`AppError`], which names the setting.
    pub async fn build(settings: &Settings) -> Result<Self, AppError> {
        let data_limit = settings.limits.event_data_bytes;
        let address = settings.ops.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, OPS_PORT)));
        Ok(Self {
            ledger: connections::ledger(settings, "event-ingest")?,
            broker: connections::broker(settings, "event-ingest")?,
            ops: OpsServer::bind(address).await?,
            batch: settings.ingest.batch,
            prefetch: Prefetch::within(settings.ingest.prefetch, settings.ingest.prefetch_bytes, data_limit),
            data_limit,
            high_load: settings.ingest.rush,
            flood: settings.ingest.flood,
            deadline: settings.shutdown.deadline,
            schedule: settings.retry.schedule.clone(),
            reconcile: settings.reconcile.clone(),
            retention: settings.retention.clone(),
        })
    }

    /// The address of the operations port.
    #[must_use]
    pub fn ops_address(&self) -> SocketAddr {
        self.ops.local_addr()
    }

    /// Runs until `shutdown`, then finishes what is under way within `shutdown.deadline`.
    ///
    /// # Errors
    /// [`AppError::Schema`] when the database's schema is too old.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AppError> {
        let finished = CancellationToken::new();
        let _stop_helpers = finished.clone().drop_guard();
        let mut registry = Registry::default();
        let database = DatabaseWatch::start(&self.ledger, &mut registry, finished.clone());
        let intake = Intake {
            ledger: self.ledger.clone(),
            database,
            publisher: self.broker.publisher(finished.clone()),
            names: self.broker.names().clone(),
            metrics: Metrics::register(&mut registry, self.broker.stats()),
            data_limit: self.data_limit,
            keep: self.retention.keep,
            high_load: HighLoad::above(self.high_load, Instant::now()),
            flood: Flood::above(self.flood, Instant::now()),
            acks: Acks::of(self.prefetch.usual()),
            turns: Arc::new(Semaphore::new(1)),
            abandon: CancellationToken::new(),
        };
        let upkeep = Upkeep {
            ledger: self.ledger.clone(),
            broker: self.broker.clone(),
            schedule: self.schedule,
            interval: self.reconcile.interval,
            grace: self.reconcile.grace,
            keep: self.retention.keep,
            metrics: upkeep::Metrics::register(&mut registry),
        };
        let attachment = Attachment::default();
        let consumer = attachment.clone();
        let readiness = connections::readiness(&self.ledger, &intake.publisher, shutdown.clone())
            .check("consumer", move || ready(consumer.check()));
        tokio::spawn(self.ops.serve(Arc::new(registry), readiness, finished.clone()));

        connections::wait_for_schema(&self.ledger, &shutdown).await?;
        tokio::spawn(upkeep.run(finished));
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = intake.database.known() => {}
        }
        let queue = self.broker.names().events();
        let subscription = self.broker.subscribe(queue, self.prefetch, attachment);
        consume(subscription, intake, self.batch, self.deadline, shutdown).await;
        Ok(())
    }
}

/// Takes batches until the shutdown, then waits for those under way. Acknowledges what they finish in time.
async fn consume(
    mut subscription: Subscription,
    intake: Intake,
    most: u16,
    deadline: Duration,
    shutdown: CancellationToken,
) {
    let most = usize::from(most);
    let limit = BatchLimit { messages: most, bytes: BATCH_BYTES, linger: LINGER };
    let (tasks, turns) = (TaskTracker::new(), Turns::new());
    loop {
        let next = async {
            let is_high_load = || intake.high_load.is_on(Instant::now());
            let turn = turns.next(is_high_load, || subscription.waiting() >= most).await;
            Some((turn, subscription.next_batch(limit).await?))
        };
        // A shutdown also ends the wait for a turn, which lasts for as long as the database is away.
        let next = tokio::select! {
            () = shutdown.cancelled() => break,
            next = next => next,
        };
        let Some((turn, batch)) = next else { break };
        tasks.spawn(intake.clone().take(batch, turn));
    }
    let closing = subscription.into_closing();
    tasks.close();
    if tokio::time::timeout(deadline, tasks.wait()).await.is_err() {
        tracing::warn!("the shutdown's deadline has passed: unfinished events stay on the queue");
        intake.abandon.cancel();
        tasks.wait().await;
    }
    closing.close().await;
}
