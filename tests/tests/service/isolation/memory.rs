//! Long bodies do not fill the memory.

use domain::EventType;
use end_to_end::{
    events::Event,
    processes::{Process, with_api_address},
    receiver::{Receiver, Reply, behaviour},
    system::{Options, Service, TestSystem},
    wait::{eventually, until},
};

use crate::isolation::LONG;

const MEGABYTE: usize = 1024 * 1024;
/// The most memory of a dispatcher. A debug build takes more; `make bench` measures the release build.
const MOST_MEMORY: usize = if cfg!(debug_assertions) { 140 } else { 100 } * MEGABYTE;
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

/// An indentation of each line by its depth would make 68 MB of this body of 12 KB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_body_that_is_nested_deep_take_little_memory() {
    let system = TestSystem::prepared(Options::default()).await;
    let api = Process::start("api-service", &with_api_address(&system).await).await;
    system.start(Service::Ingest).await;
    let (tenant, admin) = system.tenant().await;
    let webhook = admin.create("https://localhost:1/", &["quote.closed"]).await.id;
    let data = format!("{{\"a\":{}{}}}", "[".repeat(5_850), "]".repeat(5_850));
    let page = async |data: &str| {
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant).with_data(data)]).await;
        let newest = eventually("the delivery is stored", LONG, || async {
            let newest = admin.log(&webhook, "limit=1").await["data"][0]["id"].as_str()?.to_owned();
            let body = admin.delivery(&webhook, &newest).await["request"]["body"].as_str()?.to_owned();
            body.contains(data).then_some(newest)
        })
        .await;
        format!("/console/webhooks/{webhook}/deliveries/{newest}/")
    };
    assert_eq!(admin.get(&page("{}").await).await.status, 200);
    let path = page(&data).await;
    let before = api.peak_memory();
    let (first, second, third, fourth) =
        tokio::join!(admin.get(&path), admin.get(&path), admin.get(&path), admin.get(&path));
    for page in [first, second, third, fourth] {
        assert_eq!((page.status, page.text.contains(&"[".repeat(5_850))), (200, true), "{}", page.text);
    }
    let grown = api.peak_memory() - before;
    assert!(grown < 20 * MEGABYTE, "{} MB", grown / MEGABYTE);
}

/// Waits until at least `least` attempts are under way. Asserts that there are at most `most`, in little memory.
async fn measure(body: usize, least: usize, most: usize) {
    let options = Options { timeout: "120s", ..Options::with([("SHUTDOWN__DEADLINE", "100ms")]) };
    let system = TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let hangs = Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()));
    let data = format!(r#"{{"filler":"{}"}}"#, "x".repeat(body));
    let mut large = Vec::new();
    for _ in 0..TENANTS {
        let (tenant, admin) = system.tenant().await;
        for number in 0..WEBHOOKS {
            admin.create(&hangs.url(&format!("/{number}")), &["quote.closed"]).await;
        }
        large.extend((0..4).map(|_| Event::now(EventType::QuoteClosed, tenant).with_data(data.clone())));
    }
    system.upstream.publish(&large).await;
    let jobs = TENANTS * WEBHOOKS * 4;
    let stored = i64::try_from(jobs).unwrap();
    system.until_count("SELECT count(*) FROM deliveries", stored, LONG).await;

    let dispatcher = Process::start("dispatcher", &system.variables).await;
    until("so many attempts are under way", LONG, || async { hangs.arrived() >= least }).await;
    let peak = dispatcher.peak_memory();
    let posts = hangs.arrived();
    println!("{jobs} jobs with bodies of {} KiB, {posts} of them under way: peak {} MB", body / 1024, peak / MEGABYTE);
    assert!(posts <= most, "{posts} bodies were in memory");
    assert!(peak < MOST_MEMORY, "{} MB", peak / MEGABYTE);
}
