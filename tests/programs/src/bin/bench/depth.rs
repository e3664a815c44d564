//! Measures that lists do not get slower with the depth of the page: one webhook with 1,000,000 deliveries over several
//! days.

use std::{sync::Arc, time::Duration};

use end_to_end::{
    processes::{Process, with_api_address},
    system::{Options, System},
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{bench::Bench, kept::Kept, report::Figure};

const DELIVERIES: u32 = 1_000_000;
/// The daily partitions that the deliveries are spread over, from two days before today to two after it.
const DAYS: i64 = 5;
const PAGE: usize = 1000;
const RUNS: usize = 20;

/// Seconds for the first and for the 1,000th page, and their ratio.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let options = Options { servers: Some(bench.servers().clone()), ..Default::default() };
    System::prepared(options, async |system| {
        let _ = sender.send(measured(&system).await);
    })
    .await;
    let [first, deep] = receiver.await.expect("it was measured");
    vec![
        Figure::new("list_first_page", first, "seconds"),
        Figure::new("list_1000th_page", deep, "seconds"),
        Figure::new("list_1000th_to_first_page", deep / first, "ratio").at_most(2.0),
    ]
}

async fn measured(system: &Arc<System>) -> [f64; 2] {
    let _api = Process::start("api-service", &with_api_address(system).await).await;
    let admin = system.admin(Uuid::new_v4()).await;
    let webhook = admin.create("https://receiver.example/", &["quote.closed", "quote.accepted"]).await;
    println!("writing {DELIVERIES} deliveries over {DAYS} days …");
    fill(system, &webhook.id).await;

    let mut api = Kept::open(&admin).await;
    let first = format!("/api/v1/webhooks/{}/deliveries/?limit=50", webhook.id);
    println!("following cursors to page {PAGE} …");
    let mut deep = first.clone();
    for _ in 1..PAGE {
        let (page, _) = api.get(&deep).await;
        deep = format!("{first}&cursor={}", page["next_cursor"].as_str().expect("there is a next page"));
    }
    // In turns, so that both share whatever else this machine does.
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (path, took) in [&first, &deep].into_iter().zip(&mut took) {
            let (page, time) = api.get(path).await;
            assert_eq!(page["data"].as_array().map(Vec::len), Some(50));
            assert!(matches!(page["next_cursor"], Value::String(_)));
            took.push(time);
        }
    }
    took.map(median)
}

/// Writes the deliveries. Their ids are made as the service makes them: milliseconds, then a hash.
async fn fill(system: &System, webhook: &str) {
    let first_day = OffsetDateTime::now_utc().date() - time::Duration::days(2);
    let from = first_day.midnight().assume_utc().unix_timestamp() * 1000;
    let step = DAYS * 24 * 60 * 60 * 1000 / i64::from(DELIVERIES);
    let statement = format!(
        "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at) \
         SELECT (lpad(to_hex(ms), 12, '0') || '8' || left(hash, 3) || '8' || substr(hash, 4, 15))::uuid, '{webhook}', \
                hash::uuid, CASE n % 2 WHEN 0 THEN 'quote.closed' ELSE 'quote.accepted' END, \
                CASE n % 100 WHEN 0 THEN 'dropped' ELSE 'succeeded' END, 1, to_timestamp(ms / 1000.0) \
         FROM (SELECT n, {from}::bigint + n * {step}::bigint AS ms, md5(n::text) AS hash \
               FROM generate_series(0, {DELIVERIES} - 1) n) AS made"
    );
    system.sql(&statement).await;
    system.sql("VACUUM (ANALYZE) deliveries").await;
    let partitions = system.count("SELECT count(DISTINCT tableoid) FROM deliveries").await;
    assert_eq!(partitions, DAYS);
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let middle = times.len() / 2;
    (times[middle - 1] + times[middle]).as_secs_f64() / 2.0
}
