//! Builds, runs and stops the service.

use std::{
    future::ready,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{Attachment, BatchLimit, Broker, Closing, Prefetch, Subscription};
use domain::error_chain;
use futures_util::future::join_all;
use ledger::FailingThresholds;
use prometheus_client::registry::Registry;
use service_kit::{Foundation, Readiness, Running, Settings, StartError, connections};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use upkeep::Upkeep;

use crate::{
    ack_batch::AckBatch,
    flood::Flood,
    intake::{Intake, StoreTurns, parks},
    metrics::Metrics,
    spans::Spans,
};

/// The time for which a batch waits for more events while they come faster than that. Their jobs then reach a
/// dispatcher together, so that it need not wait for more itself.
const BATCH_LINGER: Duration = Duration::from_millis(4);
/// Batches under way at a time. Each takes one of the ledger's connections at a time, of which there are 8 by default.
const MAX_BATCHES: u16 = 4;
/// The maximum of events that ingest holds, while they are small. With 512, a publisher that never waits gets ahead of
/// ingest, and all tenants' events wait in its queue for seconds.
const PREFETCH_EVENTS: u16 = 1_024;
/// Bytes of bodies in one batch. Memory holds each batch that is under way, a few times over on its way to the ledger.
const MAX_BATCH_BYTES: usize = 2 * 1024 * 1024;
/// The interval at which the bindings of the events queue are declared.
const BINDINGS_INTERVAL: Duration = Duration::from_secs(60);
const PROCESS_NAME: &str = "event-ingest";
const OPS_PORT: u16 = 9082;

/// The service: built, then run.
pub struct App {
    foundation: Foundation,
    settings: Settings,
}

impl App {
    /// Checks the settings and takes the operations port. Neither the database nor the broker has to be there yet.
    ///
    /// # Errors
    /// [`StartError`], which names the setting.
    pub async fn build(settings: &Settings) -> Result<Self, StartError> {
        let ledger = connections::ledger(settings, PROCESS_NAME)?;
        let foundation = Foundation::build(settings, PROCESS_NAME, OPS_PORT, ledger).await?;
        Ok(Self { foundation, settings: settings.clone() })
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
        let Self { foundation, settings } = self;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let upkeep_metrics = upkeep::Metrics::register(&mut registry);
        let attachment = Attachment::default();
        let consumer = attachment.clone();
        let held = metrics.held.clone();
        let readiness =
            Readiness::new().check("consumer", move || ready(if held.get() == 0 { consumer.check() } else { Ok(()) }));
        let running = foundation.start(registry, readiness, &shutdown).await?;

        let upkeep = Upkeep {
            ledger: running.ledger.clone(),
            broker: running.broker.clone(),
            schedule: settings.retry.schedule.clone(),
            interval: settings.reconcile.interval,
            grace: settings.reconcile.grace,
            kept: settings.retention.kept(),
            failing: FailingThresholds {
                after: settings.notices.failing_after,
                attempts: settings.notices.failing_attempts.into(),
                again_after: settings.notices.failing_again_after.clone(),
            },
            metrics: upkeep_metrics,
        };
        running.essential.spawn("upkeep", upkeep.run(running.finished.clone()));
        let work = async {
            if shutdown.run_until_cancelled(running.database.known()).await.is_none() {
                return;
            }
            let (broker, prefetch) = (&running.broker, Prefetch::of_small(PREFETCH_EVENTS));
            let subscribe = || broker.subscribe(broker.names().events(), prefetch, attachment.clone());
            let intake = intake(&running, &settings, metrics, &shutdown);
            let consuming = consume(subscribe, intake, settings.ingest.batch, settings.shutdown.deadline, &shutdown);
            tokio::join!(consuming, shutdown.run_until_cancelled(keep_bindings(broker)));
        };
        running.essential.run(work).await?;
        running.finish().await;
        Ok(())
    }
}

fn intake(running: &Running, settings: &Settings, metrics: Metrics, shutdown: &CancellationToken) -> Intake {
    Intake {
        ledger: running.ledger.clone(),
        database: running.database.clone(),
        publisher: running.publisher.clone(),
        names: running.broker.names().clone(),
        metrics,
        spans: Spans::new(running.traces.clone(), running.broker.names()),
        data_limit: settings.limits.event_data_bytes,
        keep: settings.retention.kept().bodies,
        flood: Flood::above(settings.ingest.flood, settings.ingest.batch_above, Instant::now()),
        turns: StoreTurns::new(),
        acks: AckBatch::default(),
        parks: parks(),
        shutdown: shutdown.clone(),
        essential: running.essential.clone(),
        abandon: CancellationToken::new(),
    }
}

/// Declares the bindings of the events queue each minute, as anybody may delete one: the events of its type then come back
/// to their publishers.
async fn keep_bindings(broker: &Broker) {
    loop {
        tokio::time::sleep(BINDINGS_INTERVAL).await;
        if let Err(error) = broker.bind_events().await {
            let error = error_chain(&error);
            tracing::warn!(error, "the bindings of the events queue were not declared; trying again in a minute");
        }
    }
}

/// Receives batches until the shutdown, then waits for those under way. Acknowledges what they finish in time. While this
/// machine's clock and the database's differ by more than four minutes, the queue has no consumer: nobody knows which events
/// are current.
async fn consume(
    subscribe: impl Fn() -> Subscription,
    intake: Intake,
    most: u16,
    deadline: Duration,
    shutdown: &CancellationToken,
) {
    let most = usize::from(most.min(PREFETCH_EVENTS / MAX_BATCHES));
    let limit = BatchLimit { messages: most, bytes: MAX_BATCH_BYTES, linger: BATCH_LINGER };
    let (tasks, batches) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_BATCHES.into())));
    let mut closings: Vec<Closing> = Vec::new();
    while clocks_agree(&intake, shutdown).await {
        let mut subscription = subscribe();
        let working = async {
            // The semaphore is never closed.
            while let Ok(under_way) = Arc::clone(&batches).acquire_owned().await
                && let Some(batch) = subscription.next_batch(limit).await
                && let Some(came_at) = intake.database.agreed_now()
            {
                tasks.spawn(intake.clone().take(batch, came_at, under_way));
            }
        };
        // A shutdown also ends the wait for a permit, which lasts for as long as the database is away.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = intake.database.until_off(true) => {}
            () = working => {}
        }
        closings.retain(|closing| !closing.is_done());
        closings.push(subscription.into_closing());
    }
    tasks.close();
    if tokio::time::timeout(deadline, tasks.wait()).await.is_err() {
        tracing::warn!("the shutdown's deadline has passed: unfinished events stay on the queue");
        intake.abandon.cancel();
        tasks.wait().await;
    }
    join_all(closings.into_iter().map(Closing::close)).await;
}

/// Waits until this machine's clock and the database's agree. Returns `false` at the shutdown.
async fn clocks_agree(intake: &Intake, shutdown: &CancellationToken) -> bool {
    if intake.database.is_off() {
        intake.metrics.held.set(1);
        tracing::error!(
            "this machine's clock and the database's differ by more than four minutes. No events are accepted until the time \
             service (NTP) of the wrong host is fixed: they wait on their queue"
        );
        shutdown.run_until_cancelled(intake.database.until_off(false)).await;
        intake.metrics.held.set(0);
        tracing::info!("events are accepted again");
    }
    !shutdown.is_cancelled()
}
