//! Starts, runs and stops the service.

use std::{
    future::ready,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use broker::{Attachment, BatchLimit, Broker, Closing, Prefetch, Subscription};
use egress::{Egress, EgressConfig, EgressError};
use futures_util::future::join_all;
use prometheus_client::registry::Registry;
use service_kit::{
    DatabaseWatch, OpsError, OpsServer, Settings, SettingsError,
    connections::{self, SchemaTooOld},
};
use tokio_util::sync::CancellationToken;

use crate::{
    depths,
    intake::Intake,
    lane::{LaneKind, Slots},
    metrics::Metrics,
    pipeline::{Parts, Pipeline},
};

const OPS_PORT: u16 = 9083;
/// Main-lane slots for each message of the bulk lane's prefetch. A message holds up to eight jobs: enough for a busy
/// lane, and not too many wait here instead of on the queue.
const MESSAGES_OF_BULK: u16 = 4;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The operations port cannot be bound.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The database's schema is too old.
    #[error(transparent)]
    Schema(#[from] SchemaTooOld),
    /// A task that all jobs need panicked: another process has to take them.
    #[error("recording or moving panicked: no job can come to its end")]
    Broken,
}

/// The service: build it, then run it.
pub struct App {
    ops: OpsServer,
    broker: Broker,
    parts: Parts,
    deadline: Duration,
}

impl App {
    /// Checks the settings and binds the operations port. Connects to nothing yet.
    ///
    /// # Errors
    /// [`AppError`], naming the setting or the address.
    pub async fn build(settings: &Settings) -> Result<Self, AppError> {
        let address = settings.ops.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, OPS_PORT)));
        let parts = Parts {
            ledger: connections::ledger(settings, "dispatcher")?,
            keys: Arc::new(connections::secret_keys(settings)?),
            egress: egress(settings)?,
            destinations: settings.egress.destinations(),
            schedule: settings.retry.schedule.clone(),
            main: slots(settings, settings.dispatcher.max_in_flight),
            slow: slots(settings, settings.dispatcher.slow_in_flight),
            batch: usize::from(settings.dispatcher.batch),
            keep: settings.retention.keep,
        };
        Ok(Self {
            broker: connections::broker(settings, "dispatcher")?,
            ops: OpsServer::bind(address).await?,
            parts,
            deadline: settings.shutdown.deadline,
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
    /// [`AppError::Schema`] or [`AppError::Broken`].
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AppError> {
        tracing::info!(fingerprints = ?self.parts.keys.fingerprints().collect::<Vec<_>>(), "the keys that seal secrets");
        let finished = CancellationToken::new();
        let _stop_helpers = finished.clone().drop_guard();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, self.broker.stats());
        let _clock = DatabaseWatch::start(&self.parts.ledger, &mut registry, finished.clone());
        let publisher = self.broker.publisher(finished.clone());
        let broken = CancellationToken::new();
        let Pipeline { intake, recorder, attempts, mover, moves, tasks, abandon } =
            Pipeline::new(&self.parts, &self.broker, &publisher, &metrics, &broken);
        let attachments = LaneKind::ALL.map(|_| Attachment::default());
        let consumers = attachments.clone();
        let readiness = connections::readiness(&self.parts.ledger, &publisher, shutdown.clone())
            .check("consumer", move || ready(consumers.iter().try_for_each(Attachment::check)));
        tokio::spawn(self.ops.serve(Arc::new(registry), readiness, finished));

        connections::wait_for_schema(&self.parts.ledger, &shutdown).await?;
        let depths = tokio::spawn(depths::show(self.broker.clone(), metrics.clone(), shutdown.clone()));
        let recording = tokio::spawn(recorder.run(attempts, self.parts.batch));
        let moving = tokio::spawn(mover.run(moves));
        let lanes = LaneKind::ALL.into_iter().zip(attachments).map(|(kind, attachment)| {
            let prefetch = Prefetch::of(match kind {
                LaneKind::Main => self.parts.main.slots,
                LaneKind::Bulk => self.parts.main.slots.div_ceil(MESSAGES_OF_BULK),
                LaneKind::Slow => self.parts.slow.slots,
            });
            let subscription = self.broker.subscribe(kind.queue(self.broker.names()), prefetch, attachment);
            consume(kind, subscription, &intake, self.parts.batch, &shutdown)
        });
        let consuming = join_all(lanes);
        let closings = tokio::select! {
            () = broken.cancelled() => return Err(AppError::Broken),
            closing = consuming => closing,
        };
        // The intake holds the senders. Without them, recorder and mover end after the last job.
        drop(intake);
        tasks.close();
        let drained = async {
            tasks.wait().await;
            tokio::join!(recording, moving)
        };
        tokio::pin!(drained);
        if tokio::time::timeout(self.deadline, &mut drained).await.is_err() {
            tracing::warn!("the shutdown's deadline has passed: unfinished jobs stay on the queue");
            abandon.cancel();
        }
        let _ = tokio::join!(join_all(closings.into_iter().map(Closing::close)), depths);
        Ok(())
    }
}

/// Takes the batches of a lane until the shutdown.
async fn consume(
    kind: LaneKind,
    mut subscription: Subscription,
    intake: &Intake,
    most: usize,
    shutdown: &CancellationToken,
) -> broker::Closing {
    let limit = BatchLimit { messages: most, bytes: usize::MAX, linger: Duration::ZERO };
    loop {
        let batch = tokio::select! {
            () = shutdown.cancelled() => break,
            batch = subscription.next_batch(limit) => batch,
        };
        let Some(batch) = batch else { break };
        let taken = intake.take(kind, batch);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = taken => {}
        }
    }
    subscription.into_closing()
}

fn slots(settings: &Settings, slots: u16) -> Slots {
    let dispatcher = &settings.dispatcher;
    Slots { slots, webhook_share: dispatcher.webhook_share, tenant_share: dispatcher.tenant_share }
}

fn egress(settings: &Settings) -> Result<Egress, SettingsError> {
    let unusable = |error: &dyn std::fmt::Display| SettingsError::invalid("egress.extra_ca_file", error);
    let pem = settings.egress.extra_ca_file.as_ref().map(|path| {
        std::fs::read(path).map_err(|error| unusable(&format!("{} cannot be read: {error}", path.display())))
    });
    let config = EgressConfig {
        timeout: settings.egress.timeout,
        destinations: settings.egress.destinations(),
        name_servers: settings.egress.name_servers.clone(),
        extra_ca_pem: pem.transpose()?,
        idle_timeout: settings.egress.idle_timeout,
        max_idle_per_host: settings.egress.max_idle_per_host,
        max_idle: settings.egress.max_idle,
        user_agent: concat!("webhooks/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let egress = Egress::new(config).map_err(|error| match error {
        EgressError::Resolver(_) => SettingsError::invalid("egress.name_servers", error),
        error => unusable(&error),
    })?;
    if let Some(notice) = egress.notice() {
        tracing::warn!("{notice}");
    }
    Ok(egress)
}
