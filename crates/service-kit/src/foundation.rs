//! What every service stands on, whatever its work is.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use broker::{Broker, EssentialTasks, Publisher};
use ledger::Ledger;
use prometheus_client::{metrics::info::Info, registry::Registry};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use traces::Traces;

use crate::{DatabaseWatch, OpsServer, Readiness, Settings, connections, start_error::StartError, usage};

/// A service before its work begins: ledger and broker, which are not connected yet, and the operations port.
pub struct Foundation {
    process: &'static str,
    ledger: Ledger,
    broker: Broker,
    ops: OpsServer,
    traces: Traces,
}

/// What runs beside a service's work: health, metrics, the database's clock, a publisher. It ends when this is dropped.
pub struct Running {
    /// The ledger.
    pub ledger: Ledger,
    /// The broker.
    pub broker: Broker,
    /// The database's time.
    pub database: DatabaseWatch,
    /// Publishes for this service.
    pub publisher: Publisher,
    /// Begins spans, if traces are on.
    pub traces: Traces,
    /// The tasks that the service needs. [`EssentialTasks::run`] has to run the work.
    pub essential: EssentialTasks,
    /// Cancelled when this is dropped, to end whatever else runs beside the work.
    pub finished: CancellationToken,
    finish: DropGuard,
    health: JoinHandle<()>,
}

impl Foundation {
    /// Takes the operations port: that of the settings, or `ops_port` of the loopback address. Neither the database nor
    /// the broker has to be there yet.
    ///
    /// # Errors
    /// [`StartError`], which names the setting.
    pub async fn build(
        settings: &Settings,
        process: &'static str,
        ops_port: u16,
        ledger: Ledger,
    ) -> Result<Self, StartError> {
        let broker = connections::broker(settings, process)?;
        let traces = connections::traces(settings, process)?;
        let warnings = [connections::unencrypted_ledger(&ledger), connections::unencrypted_broker(&broker)];
        for warning in warnings.into_iter().flatten().chain(connections::unencrypted_urls(settings)) {
            tracing::warn!("{warning}");
        }
        let ops_address = settings.ops.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, ops_port)));
        let ops = OpsServer::bind(ops_address).await?;
        Ok(Self { process, ledger, broker, ops, traces })
    }

    /// The address of the operations port.
    pub fn ops_address(&self) -> SocketAddr {
        self.ops.local_addr()
    }

    /// Starts what runs beside the work, and waits until the database has the schema, or until `shutdown`. Shows the
    /// service's metrics and asks for its readiness from the beginning.
    ///
    /// # Errors
    /// [`StartError`] when waiting does not help.
    pub async fn start(
        self,
        mut metrics: Registry,
        readiness: Readiness,
        shutdown: &CancellationToken,
    ) -> Result<Running, StartError> {
        let Self { process, ledger, broker, ops, traces } = self;
        let finished = CancellationToken::new();
        let finish = finished.clone().drop_guard();
        let build = Info::new([("service", process), ("version", env!("CARGO_PKG_VERSION"))]);
        metrics.register("webhooks_build", "What runs here", build);
        broker.stats().register(&mut metrics);
        ledger.register(&mut metrics);
        usage::show(&ledger, &mut metrics);
        traces.register(&mut metrics);
        let essential = broker.essential().clone();
        let database = DatabaseWatch::start(&ledger, &mut metrics, &essential, finished.clone());
        let publisher = broker.publisher(finished.clone());
        let readiness =
            connections::checked(readiness, &ledger, &publisher).draining(shutdown.clone()).shown(&mut metrics);
        let health = essential.spawn("health", ops.serve(Arc::new(metrics), readiness, finished.clone()));
        essential.run(connections::wait_for_schema(&ledger, shutdown)).await??;
        Ok(Running { ledger, broker, database, publisher, traces, essential, finished, finish, health })
    }
}

impl Running {
    /// Ends what runs beside the work. Waits until the operations port is closed (a second for an answer that is under
    /// way), and until the last spans are exported, for a second at most.
    pub async fn finish(self) {
        let Self { finish, health, traces, .. } = self;
        drop(finish);
        let _ = tokio::join!(health, traces.end());
    }
}
