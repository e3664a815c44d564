//! Counters at the end of their type: one webhook's number is nobody else's affair.

use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::TestSystem,
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::health::{health, once};

const END: u64 = 2_147_483_647;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_stop_at_the_end_of_their_type_and_all_attempts_are_recorded() {
    let system = TestSystem::running(once()).await;
    let failing = Receiver::start(&system.ca, always(500));
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let (api, others) = (system.admin(one).await, system.admin(other).await);
    let webhook = api.create(&failing.url("/one"), &["quote.closed"]).await;
    let neighbour = others.create(&failing.url("/other"), &["quote.closed"]).await;
    let publish = async |tenant: Uuid| {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
    };
    let recorded = async |attempts: i64| {
        let count = "SELECT count(*) FROM attempts";
        let are_recorded = || async { (system.count(count).await == attempts).then_some(()) };
        eventually("all attempts are recorded", SOON, are_recorded).await;
    };
    publish(one).await;
    recorded(1).await;
    for statement in [
        "UPDATE webhook_health SET failure_count = 2147483646, dropped = 2147483647, last_dropped = 2147483647",
        "UPDATE webhook_stats SET attempts = 2147483646, dropped = 2147483647",
    ] {
        system.sql(statement).await;
    }
    for _ in 0..3 {
        publish(one).await;
        publish(other).await;
    }
    recorded(7).await;
    assert_eq!(health(&api, &webhook.id).await.failures, END);
    assert_eq!(health(&others, &neighbour.id).await.failures, 3);
    let most = format!("SELECT max(attempts)::bigint FROM webhook_stats WHERE webhook_id = '{}'", webhook.id);
    // A slower attempt is counted in another row.
    assert!(system.count(&most).await >= i64::try_from(END).unwrap() - 1);
}
