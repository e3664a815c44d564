//! The index of waiting deliveries: held jobs in front hide no lost one, and the most overdue one is shown.

use std::net::SocketAddr;

use end_to_end::{
    history::made,
    receiver::{Receiver, always},
    system::{Service, TestSystem, metric},
    wait::{eventually, until},
};
use uuid::Uuid;

use crate::rebuild::{Consumers, LONG, again, options};

/// Held jobs: some chunks of the index.
const HELD: usize = 25_000;

pub(super) async fn oldest(ingest: SocketAddr) -> f64 {
    metric(ingest, "webhooks_reconcile_oldest_overdue_seconds").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_jobs_in_front_hide_no_lost_one_and_the_gauge_shows_it_until_it_is_done() {
    let system = TestSystem::prepared(options()).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    let admin = system.admin(tenant).await;
    let paused = admin.create(&receiver.url("/paused"), &["quote.closed"]).await.id;
    let active = admin.create(&receiver.url("/active"), &["quote.closed"]).await.id;
    system.stop(Service::Api).await;
    made(&system, tenant, &paused, HELD, "'succeeded'").await;
    made(&system, tenant, &active, 1, "'succeeded'").await;
    for statement in [
        format!("UPDATE webhooks SET is_active = false WHERE id = '{paused}'"),
        format!("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE webhook_id = '{paused}'"),
        format!(
            "UPDATE deliveries SET state = 'retrying', next_attempt_at = now() - interval '1 hour' \
                 * CASE WHEN webhook_id = '{paused}' THEN 3 ELSE 1 END"
        ),
    ] {
        system.sql(&statement).await;
    }
    let ingest = system.start(Service::Ingest).await;
    let consumers = Consumers::start(&system).await;
    until("it is back", LONG, || async { again(ingest, "overdue").await == 1.0 }).await;
    let shown = || async { (3_600.0..7_200.0).contains(&oldest(ingest).await).then_some(()) };
    eventually("it is shown", LONG, shown).await;
    system
        .sql(&format!(
            "UPDATE deliveries SET state = 'succeeded', next_attempt_at = NULL WHERE webhook_id = '{active}'"
        ))
        .await;
    until("nothing is overdue", LONG, || async { oldest(ingest).await == 0.0 }).await;
    assert_eq!(consumers.take().len(), 1);

    // The same of one that was never attempted.
    system
            .sql(&format!(
                "UPDATE deliveries SET state = 'pending', created_at = now() - interval '1 hour' WHERE webhook_id = '{active}'"
            ))
            .await;
    eventually("it is shown", LONG, shown).await;
    system.sql(&format!("UPDATE deliveries SET state = 'succeeded' WHERE webhook_id = '{active}'")).await;
    until("nothing is overdue", LONG, || async { oldest(ingest).await == 0.0 }).await;
    consumers.close().await;
}
