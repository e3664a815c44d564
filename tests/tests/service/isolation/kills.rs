//! `kill -9` of a dispatcher while it holds jobs.

use std::collections::HashMap;

use end_to_end::{
    processes::Process,
    receiver::always,
    system::{Service, TestSystem, metric},
    wait::until,
};
use uuid::Uuid;

use crate::isolation::{LONG, events, now_and_then_slow, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_a_dispatcher_while_it_holds_jobs_loses_none() {
    const EVENTS: usize = 120;
    // After a third kill, each job that was begun would be a suspect and wait for its turn.
    const KILLS: usize = 2;
    let system = TestSystem::serving(options(32, 8), [Service::Api, Service::Ingest]).await;
    let tenant = Uuid::new_v4();
    let receiver = now_and_then_slow(&system);
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let mut dispatcher = Process::start("dispatcher", &system.variables).await;
    for killed in 1..=KILLS {
        system.upstream.publish(&events(tenant, EVENTS / KILLS)).await;
        until("jobs are being held", LONG, || async {
            metric(dispatcher.ops, "webhooks_jobs_held_total").await > 20.0
        })
        .await;
        dispatcher.kill();
        let recorded = system.count("SELECT count(*) FROM attempts").await;
        println!("kill {killed}: {recorded} attempts are recorded");
        assert!(recorded < i64::try_from(killed * EVENTS / KILLS).unwrap(), "it was killed in the middle");
        dispatcher = Process::start("dispatcher", &system.variables).await;
    }
    receiver.behave(always(200));
    let done = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{}' AND state = 'succeeded'", webhook.id);
    system.until_count(&done, i64::try_from(EVENTS).unwrap(), LONG).await;
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, i64::try_from(EVENTS).unwrap());
    let mut posts = HashMap::new();
    for one in receiver.received() {
        *posts.entry(one.header("x-service-webhook-id").unwrap().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(posts.len(), EVENTS);
    let repeated: usize = posts.values().map(|times| times - 1).sum();
    assert!(repeated <= KILLS * (32 / 8 + 8 / 2 + 32), "{repeated} POSTs were repeated");
    assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);
}
