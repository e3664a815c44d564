//! The timestamps of events that are accepted.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    events::Event,
    outsider::text_header,
    receiver::{Receiver, always},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::SOON,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::delivery::{judged, settled, start_all};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

fn fired(tenant: Uuid, at: OffsetDateTime) -> Event {
    Event { timestamp: at.format(&Rfc3339).unwrap(), ..Event::now(EventType::QuoteClosed, tenant) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_from_within_what_is_kept_arrives_and_another_is_parked_with_the_bounds_and_taken_when_more_is_kept() {
    let system = TestSystem::prepared(Options::default()).await;
    let ingest = start_all(&system).await;
    let (tenant, now) = (Uuid::new_v4(), OffsetDateTime::now_utc());
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    let good = [now - DAY * 30 + MINUTE, now - DAY * 12, now, now + DAY - MINUTE];
    let far = "9999-12-31T23:59:59Z".parse::<domain::Timestamp>().unwrap().as_datetime();
    let bad = [now - DAY * 30 - MINUTE, now + DAY + MINUTE * 60, now - DAY * 40, far, OffsetDateTime::UNIX_EPOCH];
    let events: Vec<_> = good.iter().chain(&bad).map(|at| fired(tenant, *at)).collect();
    system.upstream.publish(&events).await;
    settled(&system, ingest, 9).await;
    assert_eq!((judged(ingest, "accepted").await, judged(ingest, "rejected").await), (4.0, 5.0));
    assert_eq!(receiver.received().len(), 4);

    let rejected = system.names.rejected();
    system.upstream.wait_ready(&rejected, 5, SOON).await;
    let parked = system.upstream.take(&rejected).await.unwrap();
    let text = |name: &str| text_header(&parked, name);
    assert_eq!(text("x-rejected-reason"), "timestamp_out_of_range");
    let detail = text("x-rejected-detail");
    assert!(detail.starts_with("timestamp: ") && detail.contains("retention.keep"), "{detail}");
    assert!(detail.contains(&(now - DAY * 30).date().to_string()), "{detail}");

    system.stop(Service::Ingest).await;
    system.start_with(Service::Ingest, with_keep(&system, "60days")).await;
    // All are taken before the first one is published: some come back.
    for message in system.upstream.take_all(&rejected).await.iter().chain([&parked]) {
        system.upstream.publish_raw("quote.closed", &message.data).await;
    }
    receiver.wait_for(6, SOON).await;
    system.upstream.wait_ready(&rejected, 3, SOON).await;
}

fn with_keep(system: &System, keep: &str) -> service_kit::Settings {
    system.settings_with(&[("RETENTION__KEEP", keep)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_without_partitions_gets_them_with_its_first_event_or_test() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Dispatcher]).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    drop_all_days(&system).await;
    let test = api.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await;
    assert_eq!(test.status, 202, "{}", test.text);
    receiver.wait_for(1, SOON).await;

    // Another session leads and does none of the work.
    let idle = system.ledger_as("idle", 1).candidate().await.unwrap().lead().await.unwrap();
    assert!(idle.is_ok());
    drop_all_days(&system).await;
    system.start(Service::Ingest).await;
    let now = OffsetDateTime::now_utc();
    let events: Vec<_> = (0..40).map(|number| fired(tenant, now - DAY / 2 * (number % 4))).collect();
    system.upstream.publish(&events).await;
    receiver.wait_for(41, SOON).await;
    let days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'deliveries'::regclass";
    assert!((2..=3).contains(&system.count(days).await), "those of the events alone");
}

async fn drop_all_days(system: &System) {
    let drop = "DO $$ DECLARE part regclass; BEGIN \
                  FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent IN \
                    ('events'::regclass, 'deliveries'::regclass, 'attempts'::regclass) \
                  LOOP EXECUTE 'DROP TABLE ' || part; END LOOP; END $$";
    system.database_session(drop).await;
}
