//! A tenant with very many events, beside one with few.

use end_to_end::{
    receiver::{Receiver, always},
    system::{Service, System},
    wait::eventually,
};
use uuid::Uuid;

use crate::{LONG, events, options};

/// Jobs a second, about.
const FLOOD: u32 = 50;
const MANY: usize = 600;
const FEW: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_waits_behind_itself_and_another_tenants_jobs_do_not() {
    let mut options = options(16, 8);
    options.settings.push(("INGEST__FLOOD", FLOOD.to_string()));
    System::prepared(options, async |system| {
        system.start(Service::Api).await;
        // Makes the queues.
        system.start(Service::Dispatcher).await;
        system.stop(Service::Dispatcher).await;
        system.start(Service::Ingest).await;
        let (many, few) = (Uuid::new_v4(), Uuid::new_v4());
        let receiver = Receiver::start(&system.ca, always(200));
        for (tenant, path) in [(many, "/many"), (few, "/few")] {
            system.admin(tenant).await.create(&receiver.url(path), &["quote.closed"]).await;
        }
        let stored = async |deliveries: usize| {
            let count = "SELECT count(*) FROM deliveries";
            let are_stored = || async { (system.count(count).await == deliveries as i64).then_some(()) };
            eventually("all events are stored", LONG, are_stored).await;
            system.upstream.wait_ready(&system.names.events(), 0, LONG).await;
        };
        system.upstream.publish(&events(many, MANY)).await;
        stored(MANY).await;
        system.upstream.publish(&events(few, FEW)).await;
        stored(MANY + FEW).await;
        let bulk = system.names.bulk();
        eventually("most wait in bulk", LONG, || async { (system.upstream.ready(&bulk).await > 30).then_some(()) })
            .await;

        system.start(Service::Dispatcher).await;
        let received = receiver.wait_for(MANY + FEW, LONG).await;
        let last = received.iter().rposition(|one| one.path == "/few").unwrap();
        println!("the last of {FEW} came as number {last} of {}", received.len());
        assert!(last < MANY * 3 / 4, "the last of {FEW} came as number {last} of {}", received.len());
    })
    .await;
}
