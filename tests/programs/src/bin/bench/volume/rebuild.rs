//! The broker's memory counts as lost while 1,000,000 retries wait: the rebuild publishes all of them again. Only the
//! queue that stands for the memory is deleted. If the others were, the other tenant would notice their loss, not the
//! rebuild.

use std::time::{Duration, Instant};

use end_to_end::wait::eventually;
use uuid::Uuid;

use super::{
    Volume,
    operation::{Operation, Others},
    size::RETRIES,
};
use crate::report::Figure;

const PUBLISHED_METRIC: &str = "webhooks_reconcile_jobs_total{cause=\"broker_lost\"}";
const IS_BEGUN: &str = "SELECT count(*) FROM broker_generation WHERE rebuild_id IS NOT NULL";
/// How long the leader may take to notice. It looks every five seconds, and believes the second look.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(60);

/// The work begins when the loss is noticed, and ends when the ledger has a new generation.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let environment = volume.environment;
    let operation = Operation { name: "rebuild", rows: volume.size.of(RETRIES), others: Others::Millis(200.0) };
    eventually("there is a memory to lose", NOTICE_TIMEOUT, || async { generation(volume).await }).await;
    let lost = generation(volume).await.expect("it was there just now");
    let is_other = format!("SELECT count(*) FROM broker_generation WHERE id <> '{lost}' AND rebuild_id IS NULL");
    let before = environment.metric("event-ingest", PUBLISHED_METRIC).await;
    let mut figures = volume
        .measured(&operation, async || {
            environment.system.upstream.delete_queue(&environment.system.names.generation(lost)).await;
            eventually("the loss is noticed", NOTICE_TIMEOUT, || async {
                let noticed = environment.count(IS_BEGUN).await + environment.count(&is_other).await;
                (noticed > 0).then_some(())
            })
            .await;
            let done = async || {
                if environment.count(&is_other).await > 0 { 1.0 } else { part_published(volume, before).await }
            };
            operation.watched(Instant::now(), done).await
        })
        .await;
    let published = environment.metric("event-ingest", PUBLISHED_METRIC).await - before;
    #[expect(clippy::cast_precision_loss, reason = "some millions")]
    figures.push(Figure::new("volume_rebuild_published", published, "jobs").at_least(operation.rows as f64));
    figures
}

async fn generation(volume: &Volume<'_>) -> Option<Uuid> {
    let rows = volume.environment.rows("SELECT id::text FROM broker_generation WHERE id IS NOT NULL").await;
    rows.first()?.get::<_, &str>(0).parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "some millions")]
async fn part_published(volume: &Volume<'_>, before: f64) -> f64 {
    let published = volume.environment.metric("event-ingest", PUBLISHED_METRIC).await - before;
    (published / volume.size.of(RETRIES) as f64).min(0.999)
}
