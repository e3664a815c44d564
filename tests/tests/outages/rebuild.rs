//! Jobs that the queues have lost come back from the ledger, and only those: lost-job detection and rebuild.
mod disk;
mod index;
mod leaders;
mod nodes;
mod order;
mod overdue;
mod scans;
mod waiting;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use domain::Job;
use end_to_end::{
    api::Created,
    history::made,
    outsider::connect_any,
    receiver::Receiver,
    system::{Options, Service, System, metric},
    wait::eventually,
};
use futures_util::StreamExt;
use lapin::{
    Channel, Connection,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use parking_lot::Mutex;
use uuid::Uuid;

/// The deadline for work that keeps the machine busy or waits for a server.
const LONG: Duration = Duration::from_secs(90);

fn options() -> Options {
    with_grace("3s")
}

/// The grace is so long that nothing is lost.
fn patient() -> Options {
    with_grace("10m")
}

fn with_grace(grace: &str) -> Options {
    Options::with([("RECONCILE__INTERVAL", "100ms"), ("RECONCILE__GRACE", grace)])
}

/// How many jobs were enqueued again for a cause.
async fn again(ingest: SocketAddr, cause: &str) -> f64 {
    metric(ingest, &format!("webhooks_reconcile_jobs_total{{cause=\"{cause}\"}}")).await
}

/// Waits until this number of jobs was enqueued again. A consumer may have the last one a moment before.
async fn are_back(ingest: SocketAddr, jobs: f64) {
    eventually("the jobs are back", LONG, || async { (again(ingest, "overdue").await >= jobs).then_some(()) }).await;
}

async fn passes(ingest: SocketAddr, result: &str) -> f64 {
    metric(ingest, &format!("webhooks_reconcile_passes_total{{result=\"{result}\"}}")).await
}

/// Waits until `more` further passes have ended with `result`.
async fn more_passes(ingest: SocketAddr, result: &str, more: f64) {
    let before = passes(ingest, result).await;
    let what = format!("{more} more passes are {result:?}");
    eventually(&what, LONG, || async { (passes(ingest, result).await >= before + more).then_some(()) }).await;
}

/// Consumers of all lanes that keep the jobs they receive, and do nothing with them.
struct Consumers {
    jobs: Arc<Mutex<Vec<Job>>>,
    connection: Connection,
    _channels: Vec<Channel>,
}

impl Consumers {
    /// Consumes the lanes. The queues exist.
    async fn start(system: &System) -> Self {
        Self::holding(system, 0).await
    }

    /// Consumes the lanes, and acknowledges nothing: each consumer holds at most this many messages. 0: it acknowledges
    /// all.
    async fn holding(system: &System, messages: u16) -> Self {
        let (connection, jobs) = (connect_any(&system.amqp_url).await.unwrap(), Arc::new(Mutex::new(Vec::new())));
        let mut channels = Vec::new();
        for queue in [system.names.main(), system.names.bulk(), system.names.slow()] {
            let channel = connection.create_channel().await.unwrap();
            channel.basic_qos(messages, BasicQosOptions::default()).await.unwrap();
            let options = BasicConsumeOptions { no_ack: messages == 0, ..Default::default() };
            let table = FieldTable::default();
            let mut consumer = channel.basic_consume(queue.as_str().into(), "".into(), options, table).await.unwrap();
            let jobs = Arc::clone(&jobs);
            tokio::spawn(async move {
                while let Some(Ok(delivery)) = consumer.next().await {
                    jobs.lock().extend(Job::parse(&delivery.data).unwrap_or_default());
                }
            });
            channels.push(channel);
        }
        Self { jobs, connection, _channels: channels }
    }

    /// The jobs that came since the last call, in their order within each lane.
    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.jobs.lock())
    }

    /// Waits until `count` more jobs have come, and returns them.
    async fn wait_for(&self, count: usize) -> Vec<Job> {
        eventually("the jobs come", LONG, || async {
            let mut jobs = self.jobs.lock();
            (jobs.len() >= count).then(|| std::mem::take(&mut *jobs))
        })
        .await
    }

    async fn close(self) {
        self.connection.close(200, "bye".into()).await.unwrap();
    }
}

/// Webhooks with ten overdue deliveries each and no job on the queues, by what else the ledger says of them.
struct Cases {
    tenant: Uuid,
    names: Vec<(&'static str, Created)>,
}

const EACH: usize = 10;

impl Cases {
    async fn register(system: &System, receiver: &Receiver) -> Self {
        let tenant = Uuid::new_v4();
        system.start(Service::Api).await;
        let admin = system.admin(tenant).await;
        let mut names = Vec::new();
        for name in ["active", "paused", "promised", "held", "parked", "deleted"] {
            names.push((name, admin.create(&receiver.url(name), &["quote.closed"]).await));
        }
        system.stop(Service::Api).await;
        Self { tenant, names }
    }

    fn id(&self, case: &str) -> &str {
        &self.names.iter().find(|(name, _)| *name == case).unwrap().1.id
    }

    async fn fill(&self, system: &System) {
        let fields = "INSERT INTO";
        for (_, webhook) in &self.names {
            made(system, self.tenant, &webhook.id, EACH, "'succeeded'").await;
        }
        let deliveries = |case| format!("FROM deliveries WHERE webhook_id = '{}'", self.id(case));
        for statement in [
            format!("UPDATE webhooks SET is_active = false WHERE id = '{}'", self.id("paused")),
            format!("UPDATE webhooks SET is_active = false, deleted_at = now() WHERE id = '{}'", self.id("deleted")),
            format!("{fields} promised_jobs SELECT id, now() + interval '1 hour' {}", deliveries("promised")),
            format!("{fields} held_jobs SELECT webhook_id, id {}", deliveries("held")),
            format!("{fields} suspect_jobs SELECT id, 3, now(), 'poison' {}", deliveries("parked")),
            // The last statement, and only one: lost-job detection already runs. About half of them have a due time.
            "UPDATE deliveries SET state = 'pending', created_at = created_at - interval '1 minute', \
             next_attempt_at = CASE WHEN id::text ~ '[0-7]$' THEN created_at END"
                .to_owned(),
        ] {
            system.sql(&statement).await;
        }
    }
}
