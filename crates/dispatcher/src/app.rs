//! Starts, runs and stops the service.

use std::{future::ready, net::SocketAddr, sync::Arc, time::Duration};

use broker::{Attachment, BatchLimit, Closing, Prefetch, Subscription};
use domain::WebhookUrl;
use egress::{Egress, EgressConfig, EgressError};
use futures_util::future::join_all;
use ledger::{Ledger, SecretKeys};
use prometheus_client::registry::Registry;
use service_kit::{Foundation, Readiness, Settings, SettingsError, StartError, connections, process};
use tokio_util::sync::CancellationToken;

use crate::{
    brake::{Braked, POLL_INTERVAL},
    depths, descriptors,
    lane::{LaneKind, prefetch},
    line::{self, intake::Intake},
    metrics::Metrics,
};

const PROCESS_NAME: &str = "dispatcher";
const OPS_PORT: u16 = 9083;

/// The service: build it, then run it.
pub struct App {
    foundation: Foundation,
    settings: Settings,
    egress: Egress,
    canary: Option<WebhookUrl>,
    keys: SecretKeys,
    /// For the brake alone.
    orders: Ledger,
}

impl App {
    /// Checks the settings and binds the operations port. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StartError`], naming the setting or the address.
    pub async fn build(settings: &Settings) -> Result<Self, StartError> {
        let mut fitting = settings.clone();
        if let Some(warning) = process::descriptor_limit().and_then(|limit| descriptors::fit(&mut fitting, limit)) {
            tracing::warn!("{warning}");
        }
        let settings = &fitting;
        let (keys, egress) = (connections::secret_keys(settings)?, egress(settings)?);
        let canary = settings.egress.canary()?;
        let jobs = settings.database.max_connections.saturating_sub(1).max(1);
        let ledger = connections::ledger_with(settings, PROCESS_NAME, jobs)?;
        let orders = connections::part_of_ledger(&ledger, 1, POLL_INTERVAL)?;
        let foundation = Foundation::build(settings, PROCESS_NAME, OPS_PORT, ledger).await?;
        Ok(Self { foundation, settings: fitting, egress, canary, keys, orders })
    }

    /// The address of the operations port.
    pub fn ops_address(&self) -> SocketAddr {
        self.foundation.ops_address()
    }

    /// Runs until `shutdown`, then finishes what is under way within `shutdown.deadline`.
    ///
    /// # Errors
    /// [`StartError`] when the database cannot be used, however long one waits, or when a task panicked.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), StartError> {
        let Self { foundation, settings, egress, canary, keys, orders } = self;
        tracing::info!(fingerprints = ?keys.fingerprints().collect::<Vec<_>>(), "the keys that seal secrets");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let attachments = LaneKind::ALL.map(|_| Attachment::default());
        let consumers = attachments.clone();
        let braked = Braked::default();
        let waits = braked.clone();
        let readiness = Readiness::new().check("consumer", move || {
            ready(if waits.is_on() { Ok(()) } else { consumers.iter().try_for_each(Attachment::check) })
        });
        let running = foundation.start(registry, readiness, &shutdown).await?;
        let (intake, ending) =
            line::start(&running, &settings, egress, keys, (braked.clone(), orders, canary), &metrics);
        let (tasks, context) = (intake.tasks.clone(), Arc::clone(&intake.line.context));
        let braking = running.essential.spawn("brake", Arc::clone(&intake.line.brake).run(shutdown.clone()));
        let gaps = settings.retry.schedule.gaps();
        let showing = depths::show(running.broker.clone(), gaps, metrics, shutdown.clone());
        let depths = running.essential.spawn("queue depths", showing);
        let most = usize::from(settings.dispatcher.batch);
        let work = async {
            shutdown.run_until_cancelled(running.database.known()).await;
            let (intake_of, running) = (&intake, &running);
            let prefetch = Prefetch::of(prefetch(&settings.dispatcher));
            let lanes = LaneKind::ALL.into_iter().zip(attachments).map(|(kind, attachment)| {
                let subscribe = move || {
                    let queue = kind.queue(running.broker.names());
                    running.broker.subscribe(queue, prefetch, attachment.clone())
                };
                consume(kind, subscribe, intake_of, &braked, most, &shutdown)
            });
            let closings = join_all(lanes).await;
            // The intake and the jobs under way hold the senders. Without them, recorder and holder end after the last job.
            drop(intake);
            tasks.close();
            let drained = async {
                tasks.wait().await;
                join_all(ending).await
            };
            tokio::pin!(drained);
            if tokio::time::timeout(settings.shutdown.deadline, &mut drained).await.is_err() {
                tracing::warn!("the shutdown's deadline has passed: unfinished jobs stay on the queue");
                context.abandon.cancel();
            }
            let _ = tokio::join!(join_all(closings.into_iter().flatten().map(Closing::close)), depths, braking);
        };
        running.essential.run(work).await?;
        running.finish().await;
        Ok(())
    }
}

/// Accepts the batches of a lane until the shutdown. While the brake is on, the lane has no consumer. Returns the handles of
/// those that are stopped and may have jobs under way.
async fn consume(
    kind: LaneKind,
    subscribe: impl Fn() -> Subscription,
    intake: &Intake,
    braked: &Braked,
    most: usize,
    shutdown: &CancellationToken,
) -> Vec<Closing> {
    let limit = BatchLimit { messages: most, bytes: usize::MAX, linger: Duration::ZERO };
    let mut closings: Vec<Closing> = Vec::new();
    while let Some(set_again) = shutdown.run_until_cancelled(braked.off()).await {
        let mut subscription = subscribe();
        let working = async {
            while let Some(batch) = subscription.next_batch(limit).await {
                Box::pin(intake.take(kind, batch)).await;
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = set_again => {}
            () = working => {}
        }
        closings.retain(|closing| !closing.is_done());
        closings.push(subscription.into_closing());
    }
    closings
}

fn egress(settings: &Settings) -> Result<Egress, SettingsError> {
    let config = EgressConfig {
        timeout: settings.egress.timeout,
        address_policy: settings.egress.address_policy(),
        name_servers: settings.egress.name_servers.clone(),
        extra_ca_pem: settings.egress.extra_ca_pem()?,
        idle_timeout: settings.egress.idle_timeout,
        max_idle_per_host: settings.egress.max_idle_per_host,
        max_idle: settings.egress.max_idle,
        user_agent: concat!("webhooks/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let egress = Egress::new(config).map_err(|error| match error {
        EgressError::Resolver(_) => SettingsError::invalid("egress.name_servers", error),
        error => SettingsError::invalid("egress.extra_ca_file", error),
    })?;
    if let Some(notice) = egress.notice() {
        tracing::warn!("{notice}");
    }
    Ok(egress)
}
