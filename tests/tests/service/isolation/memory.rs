//! Long bodies do not fill the memory.

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, Reply, behaviour},
    system::{Options, Service, System},
    wait::eventually,
};
use uuid::Uuid;

use crate::isolation::LONG;

const MEGABYTE: usize = 1024 * 1024;
/// The most memory of a dispatcher. A debug build takes more; `make bench` measures the release build.
const MOST_MEMORY: usize = if cfg!(debug_assertions) { 130 } else { 100 } * MEGABYTE;
const WEBHOOKS: usize = 40;
const TENANTS: usize = 8;

/// Bodies of almost 256 KiB for 320 webhooks of eight tenants, which all hang: 320 MB of bodies for 1,280 jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_receivers_and_long_bodies_at_full_load_take_little_memory() {
    // 48 in the main lane and 16 in the slow one, as the room for bodies allows.
    measure(255 * 1024, 56, 64).await;
}

/// Bodies short enough to be read with their batch (up to 24 KiB): each webhook has an attempt under way at least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_receivers_of_many_webhooks_take_little_memory() {
    measure(15 * 1024, TENANTS * WEBHOOKS, 1_280).await;
}

/// Waits until at least `least` attempts are under way. Asserts that there are at most `most`, in little memory.
async fn measure(body: usize, least: usize, most: usize) {
    let settings = vec![("SHUTDOWN__DEADLINE", "100ms".to_owned())];
    let options = Options { timeout: "120s", settings, ..Options::default() };
    System::prepared(options, async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let hangs = Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()));
        let data = format!(r#"{{"filler":"{}"}}"#, "x".repeat(body));
        let mut large = Vec::new();
        for _ in 0..TENANTS {
            let tenant = Uuid::new_v4();
            let admin = system.admin(tenant).await;
            for number in 0..WEBHOOKS {
                admin.create(&hangs.url(&format!("/{number}")), &["quote.closed"]).await;
            }
            large.extend((0..4).map(|_| Event::now(EventType::QuoteClosed, tenant).with_data(data.clone())));
        }
        system.upstream.publish(&large).await;
        let jobs = TENANTS * WEBHOOKS * 4;
        let stored = i64::try_from(jobs).unwrap();
        eventually("all deliveries are stored", LONG, || async {
            (system.count("SELECT count(*) FROM deliveries").await == stored).then_some(())
        })
        .await;

        let dispatcher = Process::start("dispatcher", &system.variables).await;
        eventually("so many attempts are under way", LONG, || async { (hangs.arrived() >= least).then_some(()) }).await;
        let peak = dispatcher.peak_memory();
        let posts = hangs.arrived();
        println!(
            "{jobs} jobs with bodies of {} KiB, {posts} of them under way: peak {} MB",
            body / 1024,
            peak / MEGABYTE
        );
        assert!(posts <= most, "{posts} bodies were in memory");
        assert!(peak < MOST_MEMORY, "{} MB", peak / MEGABYTE);
    })
    .await;
}
