//! Deliveries that are held for too long are cancelled.

use std::time::Duration;

use end_to_end::system::System;
use ledger::{HeldEnded, Leader};
use uuid::Uuid;

use crate::retention::{KEEP, Subscribed, leader, options, rows, today};

const HELD: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Looks at all held jobs. Returns how many deliveries were cancelled.
async fn end(leader: &mut Leader) -> u32 {
    let (mut next, mut all) = (Some((Uuid::nil(), Uuid::nil())), 0);
    while let Some(after) = next {
        let HeldEnded { next: further, ended, .. } = leader.held_end(after, today() - KEEP, HELD).await.unwrap();
        (next, all) = (further, all + ended);
    }
    all
}

async fn hold(system: &System, reason: &str, days: u32) {
    let held = format!("webhook_id, id, '{reason}', now() - interval '{days} days' FROM deliveries");
    let columns = "webhook_id, delivery_id, reason, held_at";
    system.sql(&format!("INSERT INTO held_jobs ({columns}) SELECT {held} ON CONFLICT DO NOTHING")).await;
}

async fn in_state(system: &System, state: &str) -> i64 {
    system.count(&format!("SELECT count(*) FROM deliveries WHERE state = '{state}'")).await
}

/// Otherwise a webhook that is dead for ever would keep all days.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_was_held_for_a_slow_receiver_for_as_long_as_history_is_kept_is_cancelled() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let mut leader = leader(&system).await;
        subscribed.past(&system, 20, "pending", "now()", "now()").await;
        subscribed.past(&system, 5, "retrying", "now() + interval '1 second'", "now()").await;
        hold(&system, "slow", 40).await;
        assert_eq!(end(&mut leader).await, 0, "the webhook was changed since, for example activated");
        system.sql("UPDATE webhooks SET updated_at = now() - interval '40 days', is_active = false").await;
        assert_eq!(end(&mut leader).await, 0, "a pause of 40 days is no end");
        system.sql("UPDATE webhooks SET is_active = true").await;
        let newest = "WHERE delivery_id = (SELECT delivery_id FROM held_jobs ORDER BY delivery_id DESC LIMIT 1)";
        system.sql(&format!("UPDATE held_jobs SET held_at = now() {newest}")).await;
        assert_eq!(end(&mut leader).await, 24, "one was tried lately");
        assert_eq!((in_state(&system, "cancelled").await, rows(&system, "held_jobs").await), (24, 1));
        system.sql("UPDATE held_jobs SET held_at = now() - interval '40 days', reason = 'paused'").await;
        assert_eq!(end(&mut leader).await, 0, "it was held by a pause, and is about to be published");
        system.sql("UPDATE held_jobs SET reason = 'slow'").await;
        assert_eq!(end(&mut leader).await, 1);
        assert_eq!((rows(&system, "held_jobs").await, rows(&system, "notices").await), (0, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_of_a_webhook_that_is_paused_for_90_days_are_cancelled_a_week_after_a_notice() {
    System::prepared(options(), async |system| {
        let (paused, other) = (Subscribed::new(&system).await, Subscribed::new(&system).await);
        let mut leader = leader(&system).await;
        for Subscribed { webhook, .. } in [&paused, &other] {
            let pause = "UPDATE webhooks SET is_active = false, updated_at = now() - interval '100 days' WHERE id =";
            system.sql(&format!("{pause} '{webhook}'")).await;
        }
        paused.past(&system, 6_000, "retrying", "now()", "now()").await;
        hold(&system, "paused", 82).await;
        let notices = "SELECT count(*) FROM notices WHERE notice_type = 'webhook.expiring'";
        assert_eq!((end(&mut leader).await, system.count(notices).await), (0, 0), "it is not time yet");
        other.past(&system, 1, "retrying", "now() + interval '1 minute'", "now()").await;
        hold(&system, "paused", 95).await;
        let other_webhook = &other.webhook;
        assert_eq!((end(&mut leader).await, system.count(notices).await), (0, 1), "nobody knew of it");
        assert_eq!(system.count(&format!("{notices} AND webhook_id = '{other_webhook}'")).await, 1);
        let younger = "WHERE held_at > now() - interval '90 days'";
        system.sql(&format!("UPDATE held_jobs SET held_at = now() - interval '84 days' {younger}")).await;
        assert_eq!((end(&mut leader).await, system.count(notices).await), (0, 2));
        assert_eq!((end(&mut leader).await, system.count(notices).await), (0, 2), "once is enough");
        let details = "SELECT details ->> 'cancelled_after' FROM notices WHERE notice_type = 'webhook.expiring' \
                       AND (details ->> 'held_since')::timestamptz < now() - interval '83 days'";
        assert_eq!(system.sql(details).await.len(), 2);
        // As if a week had passed.
        system.sql("UPDATE notices SET created_at = created_at - interval '7 days 1 minute'").await;
        assert_eq!(end(&mut leader).await, 1, "the others are held for less than 90 days");
        system.sql("UPDATE held_jobs SET held_at = held_at - interval '7 days'").await;
        // Whoever changes the webhook is noticed again.
        system.sql("UPDATE webhooks SET updated_at = now()").await;
        assert_eq!((end(&mut leader).await, system.count(notices).await), (0, 3));
        system.sql("UPDATE webhooks SET updated_at = now() - interval '8 days'").await;
        assert_eq!(end(&mut leader).await, 6_000);
        assert_eq!((in_state(&system, "cancelled").await, rows(&system, "held_jobs").await), (6_001, 0));
        assert_eq!(rows(&system, "deliveries").await, 6_001, "they stay in the log as long as others");
        paused.past(&system, 1, "retrying", "now() + interval '2 minutes'", "now()").await;
        hold(&system, "paused", 91).await;
        assert_eq!((end(&mut leader).await, system.count(notices).await), (1, 3), "the notice of the pause is enough");
    })
    .await;
}
