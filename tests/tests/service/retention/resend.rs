//! A delivery of a day that is not kept any more is not sent again: the day may be dropped at any moment.

use end_to_end::{system::Options, wait::SOON};
use serde_json::{Value, json};

use crate::retention::{DAY, Subscribed, leader, today};

/// The first moment of the oldest day that is kept, by the database's clock.
const OLDEST_KEPT: &str = "date_trunc('day', now() - interval '2 days')";

fn options() -> Options {
    Options { settings: vec![("RETENTION__KEEP", "2days".to_owned())], ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_day_that_is_not_kept_is_not_sent_again() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let api = system.admin(subscribed.tenant).await;
    leader(&system).await.partitions_ensure((today() - DAY * 3).date()).await.unwrap();
    subscribed.past(&system, 1, "dropped", &format!("{OLDEST_KEPT} - interval '2 milliseconds'"), "now()").await;
    subscribed.past(&system, 1, "dropped", OLDEST_KEPT, "now()").await;
    let log = api.log(&subscribed.webhook, "").await;
    let resend = |delivery: &Value| {
        format!("/api/v1/webhooks/{}/deliveries/{}/resend/", subscribed.webhook, delivery["id"].as_str().unwrap())
    };
    let kept = api.ask(&resend(&log["data"][0])).await;
    assert_eq!(kept.status, 202, "{}", kept.text);
    for state in ["dropped", "succeeded", "retrying", "pending"] {
        system.sql(&format!("UPDATE deliveries SET state = '{state}'")).await;
        let refused = api.ask(&resend(&log["data"][1])).await;
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("too_old")), "{state}");
    }
    system.until_count("SELECT count(*) FROM promised_jobs", 0, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_passes_over_the_days_that_are_not_kept_and_is_refused_if_there_are_no_others() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let api = system.admin(subscribed.tenant).await;
    leader(&system).await.partitions_ensure((today() - DAY * 3).date()).await.unwrap();
    subscribed.past(&system, 3, "dropped", &format!("{OLDEST_KEPT} - interval '1 hour'"), "now()").await;
    subscribed.past(&system, 2, "dropped", OLDEST_KEPT, "now()").await;
    let path = format!("/api/v1/webhooks/{}/recover/", subscribed.webhook);
    let until = (today() - DAY * 2).date().to_string() + "T00:00:00Z";
    let refused = api.post(&path, &json!({"from": "2020-01-01T00:00:00Z", "to": until})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("body_expired")), "{}", refused.text);
    let begun = api.post(&path, &json!({"from": "2020-01-01T00:00:00Z"})).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    let done = api.recovered(begun.header("location").unwrap()).await;
    assert_eq!(done["resent"], 2);
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'dropped'").await, 3);
}
