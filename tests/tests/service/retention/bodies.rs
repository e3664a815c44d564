//! Bodies that are kept for a shorter time than the log.

use domain::Job;
use end_to_end::{
    system::{Options, Service, System, metric},
    wait::{SOON, until},
};
use ledger::DayPart;
use serde_json::{Value, json};

use crate::retention::{DAY, Subscribed, leader, remove, rows, today};

/// Noon of the day that is five days old.
const OLD: &str = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '4.5 days'";

fn options() -> Options {
    let settings = [("RECONCILE__INTERVAL", "100ms"), ("RETENTION__KEEP", "30days"), ("RETENTION__BODIES", "2days")];
    Options { settings: settings.map(|(name, value)| (name, value.to_owned())).to_vec(), ..Options::default() }
}

/// Old deliveries: three dropped, one that waits, one that succeeded. And two dropped ones of now.
async fn fill(system: &System, subscribed: &Subscribed) {
    leader(system).await.partitions_ensure((today() - DAY * 5).date()).await.unwrap();
    subscribed.past(system, 3, "dropped", OLD, OLD).await;
    subscribed.past(system, 1, "retrying", &format!("{OLD} + interval '1 second'"), OLD).await;
    subscribed.past(system, 1, "succeeded", &format!("{OLD} + interval '1 minute'"), OLD).await;
    subscribed.past(system, 2, "dropped", "now()", "now()").await;
}

/// As if bodies had been kept for a shorter time.
async fn lose_newest_body(system: &System) {
    system.sql("DELETE FROM events WHERE id = (SELECT event_id FROM deliveries ORDER BY id DESC LIMIT 1)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_goes_before_its_delivery_which_then_cannot_be_sent_again() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    fill(&system, &subscribed).await;
    let removed = remove(&mut leader(&system).await, (today() - DAY * 5).date(), DayPart::Bodies).await;
    assert_eq!((removed.cancelled, removed.is_dropped), (1, true));
    assert_eq!((rows(&system, "events").await, rows(&system, "deliveries").await), (2, 7));
    let api = system.admin(subscribed.tenant).await;
    let log = api.log(&subscribed.webhook, "limit=100").await["data"].as_array().unwrap().clone();
    let expired: Vec<bool> = log.iter().map(|one| one["is_body_expired"].as_bool().unwrap()).collect();
    assert_eq!(expired, [false, false, true, true, true, true, true]);
    let path = |delivery: &Value| {
        format!("/api/v1/webhooks/{}/deliveries/{}/", subscribed.webhook, delivery["id"].as_str().unwrap())
    };
    for (place, body) in [(0, json!("{}")), (2, Value::Null), (3, Value::Null), (4, Value::Null)] {
        let read = api.get(&path(&log[place])).await.json();
        assert_eq!((&read["request"]["body"], &read["is_body_expired"]), (&body, &json!(body.is_null())), "{place}");
    }
    for (place, status, code) in
        [(4, 409, json!("body_expired")), (2, 409, json!("body_expired")), (0, 202, Value::Null)]
    {
        let answer = api.ask(&format!("{}resend/", path(&log[place]))).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &code), "{place}: {}", answer.text);
    }
}

/// As after `retention.bodies` was shortened, before the leader has removed the bodies; and after it was lengthened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_has_expired_if_it_is_gone_whatever_its_age() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    fill(&system, &subscribed).await;
    lose_newest_body(&system).await;
    let api = system.admin(subscribed.tenant).await;
    let log = api.log(&subscribed.webhook, "limit=100").await["data"].as_array().unwrap().clone();
    let expired: Vec<bool> = log.iter().map(|one| one["is_body_expired"].as_bool().unwrap()).collect();
    assert_eq!(expired, [true, false, false, false, false, false, false]);
    let page = api.get(&format!("/console/webhooks/{}/", subscribed.webhook)).await;
    assert_eq!((page.status, page.text.matches("body expired").count()), (200, 1), "{}", page.text);
    // The body of the oldest one is there, and would go before its schedule ends.
    for (place, status, code) in [(0, 409, json!("body_expired")), (1, 202, Value::Null), (6, 409, json!("too_old"))] {
        let id = log[place]["id"].as_str().unwrap();
        let path = format!("/api/v1/webhooks/{}/deliveries/{id}/", subscribed.webhook);
        assert_eq!(api.get(&path).await.json()["is_body_expired"], place == 0, "{place}");
        let answer = api.ask(&format!("{path}resend/")).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &code), "{place}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_passes_over_deliveries_without_bodies_and_is_refused_if_there_are_no_others() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    fill(&system, &subscribed).await;
    lose_newest_body(&system).await;
    let api = system.admin(subscribed.tenant).await;
    let newest = api.log(&subscribed.webhook, "limit=1").await["data"][0]["id"].as_str().unwrap().to_owned();
    let resend = format!("/api/v1/webhooks/{}/deliveries/{newest}/resend/", subscribed.webhook);
    let refused = api.ask(&resend).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("body_expired")));
    let path = format!("/api/v1/webhooks/{}/recover/", subscribed.webhook);
    let until = (today() - DAY * 3).date().to_string() + "T00:00:00Z";
    let old = json!({"from": "2020-01-01T00:00:00Z", "to": until});
    let refused = api.post(&path, &old).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("body_expired")), "{}", refused.text);
    let all = |count_only: bool| json!({"from": "2020-01-01T00:00:00Z", "count_only": count_only});
    assert_eq!(api.post(&path, &all(true)).await.json()["count"], 2);
    let begun = api.post(&path, &all(false)).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    let done = api.recovered(begun.header("location").unwrap()).await;
    assert_eq!(done["resent"], 1);
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'dropped'").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ingest_drops_old_bodies_by_itself() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    fill(&system, &subscribed).await;
    system.start(Service::Ingest).await;
    until("the old bodies are gone", SOON, || async { rows(&system, "events").await == 2 }).await;
    assert_eq!(rows(&system, "deliveries").await, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_delivery_has_ended_is_skipped_though_its_body_is_gone() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    fill(&system, &subscribed).await;
    remove(&mut leader(&system).await, (today() - DAY * 5).date(), DayPart::Bodies).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let ended = system.sql("SELECT id::text FROM deliveries WHERE state = 'dropped' ORDER BY id LIMIT 1").await;
    let delivery = ended[0].get::<_, String>(0).parse().unwrap();
    let (queue, exchange) = (system.names.main(), system.names.exchange());
    system.upstream.publish_to(&exchange, &queue, &Job { delivery, attempt: 1 }.to_bytes()).await;
    let skipped =
        async |reason: &str| metric(dispatcher, &format!("webhooks_jobs_skipped_total{{reason=\"{reason}\"}}")).await;
    until("the job is judged", SOON, || async { skipped("stale").await + skipped("unknown_delivery").await > 0.0 })
        .await;
    assert_eq!((skipped("stale").await, system.upstream.ready(&system.names.dead()).await), (1.0, 0));
}
