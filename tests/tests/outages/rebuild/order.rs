//! The order in which a rebuild publishes jobs.

use domain::DeliveryId;
use end_to_end::{
    history::made,
    receiver::{Receiver, always},
    system::{Options, Service, TestSystem},
    wait::{SOON, until},
};
use uuid::Uuid;

use crate::rebuild::{Consumers, passes, patient};

/// Rows of history between the untried deliveries, each in a chunk of its own.
const HISTORY: usize = 25_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_overdue_comes_first_and_untried_ones_beside_it_the_newest_first() {
    // A job that is due in an hour does not come while the test runs.
    let options = Options { schedule: "1m,5m,15m,1h,4h,12h", ..patient() };
    let system = TestSystem::prepared(options).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await.id;
    system.stop(Service::Api).await;
    made(&system, tenant, &webhook, 7, "'pending'").await;
    // The first of them is the newest.
    let ids = system.sql("SELECT id::text FROM deliveries ORDER BY id DESC").await;
    let ids: Vec<DeliveryId> = ids.iter().map(|row| row.get::<_, &str>(0).parse::<Uuid>().unwrap().into()).collect();
    for (place, due) in [(0, "- 10"), (1, "- 50"), (2, "- 120"), (3, "- 180"), (4, "+ 60")] {
        let due = format!("now() {due} * interval '1 minute'");
        system.sql(&format!("UPDATE deliveries SET next_attempt_at = {due} WHERE id = '{}'", ids[place])).await;
    }
    // An untried delivery that is older than the history comes in a later chunk than all those with a due time.
    let before = format!(
        "UPDATE deliveries SET id = (SELECT (lpad(to_hex((extract(epoch FROM now() - interval '30 s') * 1000)::bigint), 12, '0') \
             || '8' || repeat('0', 3) || '8' || repeat('0', 15))::uuid) WHERE id = '{}' RETURNING id::text",
        ids[6]
    );
    let oldest: Uuid = system.sql(&before).await[0].get::<_, &str>(0).parse().unwrap();
    let history = format!(
        "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts) \
             SELECT (lpad(to_hex((extract(epoch FROM now() - interval '20 s') * 1000)::bigint), 12, '0') || '80008' \
                     || lpad(to_hex(i), 15, '0'))::uuid, '{webhook}', gen_random_uuid(), 'quote.closed', 'succeeded', 1 \
             FROM generate_series(1, {HISTORY}) AS i"
    );
    system.sql(&history).await;
    system.lose_generation().await;
    let consumers = Consumers::start(&system).await;
    let ingest = system.start(Service::Ingest).await;
    until("the rebuild is done", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    let expected = [ids[3], ids[2], ids[1], ids[0], ids[5], oldest.into()];
    let came: Vec<_> = consumers.wait_for(expected.len()).await.iter().map(|job| job.delivery).collect();
    assert_eq!(came, expected, "the one that is due in an hour is in a retry queue");
    consumers.close().await;
}
