//! Long bodies do not fill the memory.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::Process,
    receiver::{Receiver, Reply, behaviour},
    system::{Options, Service, System, metric},
    wait::eventually,
};
use uuid::Uuid;

use crate::LONG;

const MEGABYTE: usize = 1024 * 1024;
const WEBHOOKS: usize = 40;
const TENANTS: usize = 8;

/// Bodies of almost 256 KiB for 320 webhooks of eight tenants that all hang: 1,280 jobs at once, 320 MB of bodies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_receivers_and_long_bodies_at_full_load_take_little_memory() {
    let settings = vec![("SHUTDOWN__DEADLINE", "100ms".to_owned())];
    let options = Options { timeout: "120s", settings, ..Options::default() };
    System::prepared(options, async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let hangs = Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()));
        let data = format!(r#"{{"filler":"{}"}}"#, "x".repeat(255 * 1024));
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

        let dispatcher = Process::start("dispatcher", &system.environment).await;
        let put_back = r#"webhooks_jobs_put_back_in_slow_lane_total"#;
        eventually("the jobs went round the slow lane", LONG, || async {
            (metric(dispatcher.ops, put_back).await > 1_000.0).then_some(())
        })
        .await;
        let idle = Duration::from_millis(200);
        eventually("the room for bodies is full", LONG, || async {
            tokio::time::sleep(idle).await;
            (hangs.received().len() >= 40).then_some(())
        })
        .await;
        let peak = dispatcher.peak_memory();
        let posts = hangs.received().len();
        println!("{jobs} jobs with bodies of 256 KiB, {posts} of them under way: peak {} MB", peak / MEGABYTE);
        assert!(posts <= 64, "{posts} long bodies were in memory");
        assert!(peak < 100 * MEGABYTE, "{} MB", peak / MEGABYTE);
    })
    .await;
}
