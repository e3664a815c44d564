//! Jobs that the queues have lost come back from the ledger, and only those: lost-job detection and rebuild.
mod disk;
mod leaders;
mod nodes;
mod overdue;
mod waiting;

use std::{net::SocketAddr, time::Duration};

use domain::EventType;
use end_to_end::{
    api::Created,
    events::Event,
    history::made,
    receiver::Receiver,
    system::{Options, Service, System, metric},
    wait::eventually,
};
use uuid::Uuid;

/// The deadline for work that keeps the machine busy or waits for a server.
const LONG: Duration = Duration::from_secs(90);

fn options() -> Options {
    let settings = [("RECONCILE__INTERVAL", "100ms".to_owned()), ("RECONCILE__GRACE", "3s".to_owned())];
    Options { settings: settings.to_vec(), ..Options::default() }
}

/// The grace is so long that nothing is overdue.
fn patient() -> Options {
    let settings = [("RECONCILE__INTERVAL", "100ms".to_owned()), ("RECONCILE__GRACE", "10m".to_owned())];
    Options { settings: settings.to_vec(), ..Options::default() }
}

fn events(tenant: Uuid, count: usize) -> Vec<Event> {
    (0..count).map(|_| Event::now(EventType::QuoteClosed, tenant)).collect()
}

/// How many jobs were enqueued again for a cause.
async fn again(ingest: SocketAddr, cause: &str) -> f64 {
    metric(ingest, &format!("webhooks_reconcile_jobs_total{{cause=\"{cause}\"}}")).await
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
            // The last statement, and only one: lost-job detection already runs.
            "UPDATE deliveries SET state = 'pending', created_at = created_at - interval '1 minute'".to_owned(),
        ] {
            system.sql(&statement).await;
        }
    }
}
