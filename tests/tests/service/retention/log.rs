//! What administrators see of deliveries and webhooks that are gone.

use end_to_end::system::TestSystem;

use crate::retention::{DAY, Subscribed, clear, drop_day, leader, options, rows, today};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_gone_is_unknown_and_lists_go_on_beyond_it() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, old) = (leader(&system).await, today() - DAY * 40);
    leader.partitions_ensure(old.date()).await.unwrap();
    let noon = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '39.5 days'";
    subscribed.past(&system, 3, "dropped", noon, noon).await;
    subscribed.past(&system, 3, "dropped", &format!("{noon} + interval '1 day'"), noon).await;
    subscribed.past(&system, 3, "dropped", "now()", "now()").await;
    let admin = system.admin(subscribed.tenant).await;
    let page = admin.log(&subscribed.webhook, "limit=7").await;
    let gone = page["data"][6]["id"].as_str().unwrap().to_owned();
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    let path = |rest: &str| format!("/api/v1/webhooks/{}/deliveries/{gone}/{rest}", subscribed.webhook);
    assert_eq!(admin.get(&path("")).await.status, 200);
    drop_day(&mut leader, old.date()).await;
    assert_eq!(admin.get(&path("")).await.status, 404);
    assert_eq!(admin.ask(&path("resend/")).await.status, 404);
    let beyond = admin.log(&subscribed.webhook, &format!("limit=7&cursor={cursor}")).await;
    assert_eq!((beyond["data"].as_array().unwrap().len(), beyond["next_cursor"].is_null()), (0, true));
    assert_eq!(admin.log(&subscribed.webhook, "limit=100").await["data"].as_array().unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_webhook_goes_with_the_last_of_its_deliveries_or_soon_if_it_never_had_one() {
    let system = TestSystem::prepared(options()).await;
    let (kept, gone) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
    kept.past(&system, 1, "cancelled", "now()", "now()").await;
    let (active, just_deleted) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
    for Subscribed { webhook, .. } in [&kept, &gone] {
        let delete = "UPDATE webhooks SET is_active = false, deleted_at = now() - interval '2 hours' WHERE id =";
        system.sql(&format!("{delete} '{webhook}'")).await;
    }
    // An ingest may be about to store its first delivery.
    let delete = "UPDATE webhooks SET is_active = false, deleted_at = now() WHERE id =";
    system.sql(&format!("{delete} '{}'", just_deleted.webhook)).await;
    let recovery = "INSERT INTO recoveries (id, webhook_id, since, cursor, finished_at) SELECT gen_random_uuid(), ";
    for (webhook, finished) in [(&gone, "now() - interval '31 days'"), (&active, "now()")] {
        system.sql(&format!("{recovery} '{0}', now(), '{0}', {finished}", webhook.webhook)).await;
    }
    system.sql("INSERT INTO requeued_jobs SELECT gen_random_uuid(), 1, now() - interval '31 days'").await;
    system.sql("INSERT INTO webhook_health SELECT id, now(), 0 FROM webhooks").await;
    let mut leader = leader(&system).await;
    assert_eq!(clear(&mut leader).await.iter().sum::<u32>(), 4);
    assert_eq!(rows(&system, "webhook_health").await, 3);
    let left = system.sql("SELECT id::text FROM webhooks").await;
    let left: Vec<String> = left.iter().map(|row| row.get(0)).collect();
    assert!(left.len() == 3 && !left.contains(&gone.webhook), "{left:?}");
    assert_eq!((rows(&system, "recoveries").await, rows(&system, "requeued_jobs").await), (1, 0));
    assert_eq!(clear(&mut leader).await.iter().sum::<u32>(), 0);
}
