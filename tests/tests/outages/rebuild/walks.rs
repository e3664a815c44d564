//! Lost jobs of old events: those that the index finds, and those that only a walk through ids finds.

use domain::EventType;
use end_to_end::{
    events::Event,
    system::System,
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::rebuild::{Consumers, are_back, index::oldest, more_passes, options, overdue::without_dispatchers};

const FIVE_DAYS: time::Duration = time::Duration::days(5);

fn fired_before(tenant: Uuid, age: time::Duration) -> Event {
    let fired = time::OffsetDateTime::now_utc() - age;
    let timestamp = fired.format(&time::format_description::well_known::Rfc3339).unwrap();
    Event { timestamp, ..Event::now(EventType::QuoteClosed, tenant) }
}

/// Waits beyond the walks' two days: the index alone finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_an_old_event_and_of_its_resend_are_found_when_they_are_lost() {
    System::prepared(options(), async |system| {
        let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
        more_passes(ingest, "done", 10.0).await;
        let consumers = Consumers::start(&system).await;
        system.upstream.publish(&[fired_before(tenant, FIVE_DAYS)]).await;
        consumers.wait_for(1).await;
        assert_eq!(system.count("SELECT count(*) FROM unsuccessful_deliveries WHERE state = 'pending'").await, 1);
        consumers.wait_for(1).await;
        are_back(ingest, 1.0).await;

        system.sql("UPDATE deliveries SET state = 'dropped', attempts = 1, next_attempt_at = NULL").await;
        let ids = system.sql("SELECT webhook_id::text, id::text FROM deliveries").await;
        let (webhook, id) = (ids[0].get::<_, &str>(0), ids[0].get::<_, &str>(1));
        let path = format!("/api/v1/webhooks/{webhook}/deliveries/{id}/resend/");
        assert_eq!(system.admin(tenant).await.ask(&path).await.status, 202);
        // The resend's job, and its copy.
        consumers.wait_for(2).await;
        are_back(ingest, 2.0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_walks_through_old_and_young_ids_find_lost_jobs_that_no_index_names() {
    System::prepared(options(), async |system| {
        let (tenant, _receiver, ingest) = without_dispatchers(&system).await;
        system.upstream.publish(&[fired_before(tenant, FIVE_DAYS)]).await;
        system.upstream.wait_ready(&system.names.main(), 1, SOON).await;
        // As if it had been stored when it fired.
        system.sql("UPDATE deliveries SET next_attempt_at = NULL, created_at = created_at - interval '5 days'").await;
        let consumers = Consumers::start(&system).await;
        are_back(ingest, 1.0).await;
        // The job, and its copy.
        consumers.wait_for(2).await;

        // The leader looks again at the most overdue one that it knows, and at those that follow.
        system.sql("UPDATE deliveries SET state = 'succeeded'").await;
        eventually("it knows none", SOON, || async { (oldest(ingest).await == 0.0).then_some(()) }).await;
        system.upstream.publish(&[fired_before(tenant, time::Duration::HOUR)]).await;
        consumers.wait_for(2).await;
        are_back(ingest, 2.0).await;
    })
    .await;
}
