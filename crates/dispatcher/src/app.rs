//! Starting, running and stopping.

use std::{
    future::ready,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use broker::{Attachment, BatchLimit, Broker, Publisher, Subscription};
use domain::{Destinations, RetrySchedule};
use egress::{Egress, EgressConfig, EgressError};
use ledger::{Ledger, SecretKeys};
use prometheus_client::registry::Registry;
use service_kit::{
    OpsError, OpsServer, Settings, SettingsError,
    connections::{self, SchemaTooOld},
};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::{Made, Sender},
    in_flight::InFlight,
    intake::Intake,
    metrics::Metrics,
    record::Recorder,
};

const OPS_PORT: u16 = 9083;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A setting.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The operations port.
    #[error(transparent)]
    Ops(#[from] OpsError),
    /// The schema.
    #[error(transparent)]
    Schema(#[from] SchemaTooOld),
}

/// The service: built, then run.
pub struct App {
    ops: OpsServer,
    ledger: Ledger,
    broker: Broker,
    egress: Egress,
    keys: Arc<SecretKeys>,
    destinations: Destinations,
    schedule: RetrySchedule,
    max_in_flight: u16,
    batch: usize,
    deadline: Duration,
}

impl App {
    /// Checks the settings and takes the operations port. Neither database nor broker need to be there yet.
    ///
    /// # Errors
    /// [`AppError`], naming the setting.
    pub async fn build(settings: &Settings) -> Result<Self, AppError> {
        let address = settings.ops.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, OPS_PORT)));
        let keys = settings.secret_keys()?.parse::<SecretKeys>();
        Ok(Self {
            keys: Arc::new(keys.map_err(|error| SettingsError::invalid("secrets.keys", error))?),
            egress: egress(settings)?,
            destinations: settings.egress.destinations(),
            ledger: connections::ledger(settings, "dispatcher")?,
            broker: connections::broker(settings, "dispatcher")?,
            ops: OpsServer::bind(address).await?,
            schedule: settings.retry.schedule.clone(),
            max_in_flight: settings.dispatcher.max_in_flight,
            batch: usize::from(settings.dispatcher.batch),
            deadline: settings.shutdown.deadline,
        })
    }

    /// The operations port.
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
        let metrics = Metrics::register(&mut registry, self.broker.stats());
        let publisher = self.broker.publisher(finished.clone());
        let (intake, recorder, made) = self.stages(&publisher, &metrics);
        let attachment = Attachment::default();
        let consumer = attachment.clone();
        let readiness = connections::readiness(&self.ledger, &publisher, shutdown.clone())
            .check("consumer", move || ready(consumer.check()));
        tokio::spawn(self.ops.serve(Arc::new(registry), readiness, finished));

        connections::wait_for_schema(&self.ledger, &shutdown).await?;
        let recording = tokio::spawn(recorder.run(made, self.batch));
        let queue = self.broker.names().deliveries();
        let subscription = self.broker.subscribe(queue, self.max_in_flight, attachment);
        let (tasks, abandon) = (intake.tasks.clone(), intake.abandon.clone());
        let closing = consume(subscription, intake, self.batch, &shutdown).await;
        let drained = async {
            tasks.wait().await;
            recording.await
        };
        tokio::pin!(drained);
        if tokio::time::timeout(self.deadline, &mut drained).await.is_err() {
            tracing::warn!("the shutdown's deadline has passed: unfinished jobs stay on the queue");
            abandon.cancel();
        }
        closing.close().await;
        Ok(())
    }

    fn stages(&self, publisher: &Publisher, metrics: &Metrics) -> (Intake, Recorder, mpsc::Receiver<Made>) {
        let (sender, made) = mpsc::channel(usize::from(self.max_in_flight));
        let abandon = CancellationToken::new();
        let in_flight = Arc::new(InFlight::new(metrics.in_flight.clone()));
        let recorder = Recorder {
            ledger: self.ledger.clone(),
            publisher: publisher.clone(),
            names: self.broker.names().clone(),
            schedule: self.schedule.clone(),
            in_flight: Arc::clone(&in_flight),
            metrics: metrics.clone(),
            abandon: abandon.clone(),
        };
        let intake = Intake {
            ledger: self.ledger.clone(),
            publisher: publisher.clone(),
            names: self.broker.names().clone(),
            schedule: self.schedule.clone(),
            sender: Sender {
                egress: self.egress.clone(),
                keys: Arc::clone(&self.keys),
                destinations: self.destinations.clone(),
                metrics: metrics.clone(),
            },
            in_flight,
            made: sender,
            metrics: metrics.clone(),
            tasks: TaskTracker::new(),
            abandon,
        };
        (intake, recorder, made)
    }
}

/// Takes batches until the shutdown. With the intake its sender ends, so that the recorder ends after the last attempt.
async fn consume(
    mut subscription: Subscription,
    intake: Intake,
    most: usize,
    shutdown: &CancellationToken,
) -> broker::Closing {
    let limit = BatchLimit { messages: most, bytes: usize::MAX };
    loop {
        let batch = tokio::select! {
            () = shutdown.cancelled() => break,
            batch = subscription.next_batch(limit) => batch,
        };
        let Some(batch) = batch else { break };
        let taken = intake.take(batch);
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = taken => {}
        }
    }
    intake.tasks.close();
    subscription.into_closing()
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
