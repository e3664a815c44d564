//! A tenant with very many webhooks, beside one with few.

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System, TestSystem},
    wait::until,
};
use uuid::Uuid;

use crate::isolation::{LONG, events, options};

/// Six events make fewer than 20,000 deliveries, seven make more.
const WEBHOOKS: usize = 3_000;

/// Publishes `burst` events of a tenant with 3,000 webhooks, active or paused, and then one event of another tenant.
/// Returns the receiver of the latter. Ingest does not run.
async fn published(system: &System, burst: usize, is_active: bool) -> Receiver {
    system.start(Service::Api).await;
    // The dispatcher declares the queues.
    system.start(Service::Dispatcher).await;
    system.stop(Service::Dispatcher).await;
    let (many, few) = (Uuid::new_v4(), Uuid::new_v4());
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(few).await.create(&receiver.url("/few"), &["quote.closed"]).await;
    let webhooks = format!(
        "INSERT INTO webhooks (id, tenant_id, name, url, events, secret_key_id, secret_sealed, is_active) \
         SELECT gen_random_uuid(), '{many}', name, url, events, secret_key_id, secret_sealed, {is_active} \
         FROM webhooks CROSS JOIN generate_series(1, {WEBHOOKS}) WHERE tenant_id = '{few}'"
    );
    system.sql(&webhooks).await;
    system.upstream.publish(&events(many, burst)).await;
    system.upstream.publish(&events(few, 1)).await;
    receiver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_for_very_many_webhooks_is_stored_by_small_statements_and_takes_the_bulk_lane() {
    const BURST: usize = 30;
    let system = TestSystem::prepared(options(32, 8)).await;
    published(&system, BURST, true).await;
    system.start(Service::Ingest).await;
    let (main, bulk) = (system.names.main(), system.names.bulk());
    let messages = u32::try_from(BURST * WEBHOOKS / 8).unwrap();
    until("the jobs of the burst are in the bulk lane", LONG, || async {
        system.upstream.ready(&bulk).await >= messages
    })
    .await;
    system.upstream.wait_ready(&main, 1, LONG).await;
    let deliveries = system.count("SELECT count(*) FROM deliveries").await;
    assert_eq!(deliveries, i64::try_from(BURST * WEBHOOKS + 1).unwrap());
    let largest = "SELECT max(made) FROM (SELECT count(*) AS made FROM deliveries GROUP BY xmin::text) AS statements";
    let largest = system.count(largest).await;
    assert!((1..=20_000).contains(&largest), "a statement made {largest} deliveries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_comes_after_a_burst_for_very_many_webhooks_is_delivered_before_that_is_stored() {
    const BURST: usize = 70;
    let mut options = options(32, 8);
    // Without that, the burst and the other event could be one batch, and nothing would wait for a further one.
    options.settings.push(("INGEST__BATCH", "10".to_owned()));
    let system = TestSystem::prepared(options).await;
    // The webhooks of the burst are paused, so that no attempts keep the machine busy.
    let receiver = published(&system, BURST, false).await;
    system.start(Service::Dispatcher).await;
    system.start(Service::Ingest).await;
    receiver.wait_for(1, LONG).await;
    let stored = system.count("SELECT count(*) FROM deliveries WHERE state = 'skipped'").await;
    let all = i64::try_from(BURST * WEBHOOKS).unwrap();
    assert!(stored < all / 2, "{stored} of {all} deliveries of the burst were stored before");
}
