//! Administrators are notified a week before held deliveries are cancelled with their day.

use std::time::Duration;

use end_to_end::system::{System, TestSystem};
use ledger::Leader;
use serde_json::json;
use uuid::Uuid;

use crate::retention::{DAY, KEEP, Subscribed, leader, options, rows, today};

/// Noon of a day that goes within a week, and of one that goes later, 31 days after it was over.
const SOON: &str = "date_trunc('day', now(), 'UTC') - interval '27.5 days'";
const LATER: &str = "date_trunc('day', now(), 'UTC') - interval '22.5 days'";
const NOTICES: &str = "SELECT count(*) FROM notices WHERE notice_type = 'webhook.expiring'";

/// Looks at all webhooks with held jobs. Returns how many notices were added.
async fn tell(leader: &mut Leader) -> i64 {
    let (mut next, mut told) = (Some(Uuid::nil()), 0);
    while let Some(after) = next {
        let step = leader.expiring_notify(after, KEEP + DAY).await.unwrap();
        assert!(step.looked <= 1_000);
        (next, told) = (step.next, told + step.notified);
    }
    told
}

async fn held(system: &System, subscribed: &Subscribed, fired: &str) {
    subscribed.past(system, 3, "pending", fired, fired).await;
    system
        .sql(
            "INSERT INTO held_jobs (webhook_id, delivery_id, held_at) \
             SELECT webhook_id, id, now() - interval '25 hours' FROM deliveries ON CONFLICT DO NOTHING",
        )
        .await;
}

/// The leader, and the days of the deliveries with their partitions.
async fn prepared(system: &System) -> Leader {
    let mut leader = leader(system).await;
    for days in [28, 23] {
        leader.partitions_ensure((today() - DAY * days).date()).await.unwrap();
    }
    leader
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_webhook_is_noticed_once_a_pause_however_often_it_is_changed() {
    let system = TestSystem::prepared(options()).await;
    let (paused, other) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
    let api = system.admin(paused.tenant).await;
    let path = format!("/api/v1/webhooks/{}/", paused.webhook);
    let change = async |body| assert_eq!(api.patch(&path, &body).await.status, 200);
    change(json!({"is_active": false})).await;
    let mut leader = prepared(&system).await;
    held(&system, &other, LATER).await;
    held(&system, &paused, LATER).await;
    assert_eq!(tell(&mut leader).await, 0, "it is not time yet");
    held(&system, &paused, SOON).await;
    assert_eq!(tell(&mut leader).await, 1);
    let told = api.get(&format!("{path}notices/")).await.json()["data"][0].clone();
    let gone = (today() - DAY * 27).date().midnight().assume_utc() + KEEP + DAY;
    let gone = domain::time_text::written(gone).unwrap();
    assert_eq!((&told["type"], &told["details"]["reason"]), (&json!("webhook.expiring"), &json!("paused")));
    assert_eq!(told["details"]["cancelled_after"], gone, "{told}");
    for name in ["one", "two"] {
        change(json!({"name": name})).await;
        assert_eq!(tell(&mut leader).await, 0, "a change is no pause");
    }
    system.sql("UPDATE notices SET created_at = created_at - interval '30 days'").await;
    system.sql("UPDATE webhooks SET paused_at = paused_at - interval '31 days'").await;
    assert_eq!(tell(&mut leader).await, 0, "once a pause");
    change(json!({"is_active": true})).await;
    change(json!({"is_active": false})).await;
    // They may have been released meanwhile.
    held(&system, &paused, SOON).await;
    assert_eq!((tell(&mut leader).await, system.count(NOTICES).await), (1, 2), "another pause");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_webhook_whose_receiver_is_too_slow_is_noticed_once_a_week_and_a_deleted_one_never() {
    let system = TestSystem::prepared(options()).await;
    let (slow, deleted) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
    system.sql(&format!("UPDATE webhooks SET deleted_at = now() WHERE id = '{}'", deleted.webhook)).await;
    let mut leader = prepared(&system).await;
    for one in [&slow, &deleted] {
        held(&system, one, SOON).await;
    }
    system.sql("UPDATE held_jobs SET held_at = held_at + interval '2 hours'").await;
    assert_eq!(tell(&mut leader).await, 0, "it is held for less than a day");
    system.sql("UPDATE held_jobs SET held_at = held_at - interval '2 hours'").await;
    assert_eq!((tell(&mut leader).await, tell(&mut leader).await), (1, 0));
    let reasons = "SELECT count(*) FROM notices WHERE details ->> 'reason' = 'slow'";
    assert_eq!(system.count(reasons).await, 1);
    system.sql("UPDATE notices SET created_at = created_at - interval '6 days 23 hours'").await;
    assert_eq!(tell(&mut leader).await, 0);
    system.sql("UPDATE notices SET created_at = created_at - interval '2 hours'").await;
    assert_eq!((tell(&mut leader).await, system.count(NOTICES).await), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_each_webhook_one_held_job_is_looked_at_and_a_day_that_is_about_to_go_is_noticed_at_once() {
    let system = TestSystem::prepared(options()).await;
    let last = Subscribed::new(&system).await;
    let mut leader = prepared(&system).await;
    // Many webhooks with many held jobs before it: none of them is registered.
    let others = "('00000000-0000-4000-8000-' || lpad(to_hex(w), 12, '0'))::uuid, gen_random_uuid()";
    let many = "FROM generate_series(1, 1500) AS w CROSS JOIN generate_series(1, 20)";
    system.sql(&format!("INSERT INTO held_jobs (webhook_id, delivery_id) SELECT {others} {many}")).await;
    held(&system, &last, LATER).await;
    let step = leader.expiring_notify(Uuid::nil(), KEEP + DAY).await.unwrap();
    assert_eq!((step.looked, step.notified), (1_000, 0));
    let rest = leader.expiring_notify(step.next.unwrap(), Duration::ZERO).await.unwrap();
    assert_eq!((rest.looked, rest.notified, rest.next), (501, 1, None));
    let at_once = "SELECT count(*) FROM notices WHERE (details ->> 'cancelled_after')::timestamptz \
                       BETWEEN created_at - interval '1 s' AND created_at + interval '1 s'";
    assert_eq!((system.count(at_once).await, rows(&system, "held_jobs").await), (1, 30_003));
}
