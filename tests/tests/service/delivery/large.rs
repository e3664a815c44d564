//! Batches that are too large for one statement, and many events of one millisecond.

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::SOON,
};
use ledger::NewEvent;
use uuid::Uuid;

use crate::delivery::{LONG, judged, settled, start_all, twice::new_event};

/// Adds a trigger that ends each insert of more than `deliveries` deliveries, as the statement timeout would.
async fn limit_statements(system: &System, deliveries: u32) {
    system
        .database_session(&format!(
            "CREATE FUNCTION limited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF (SELECT count(*) FROM made) > {deliveries} THEN \
                 RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled'; \
               END IF; RETURN NULL; END $$; \
             CREATE TRIGGER limited AFTER INSERT ON deliveries REFERENCING NEW TABLE AS made \
               FOR EACH STATEMENT EXECUTE FUNCTION limited()"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_fan_out_is_too_large_for_one_statement_is_stored_in_several() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.start(Service::Api).await;
    let api = system.admin(tenant).await;
    for _ in 0..10 {
        api.create(&receiver.url("/"), &["quote.closed"]).await;
    }
    limit_statements(&system, 50).await;
    system.upstream.publish(&Event::closed(tenant, 100)).await;
    let stranger = Event::now(EventType::QuoteClosed, Uuid::new_v4());
    system.upstream.publish(&[stranger]).await;
    let ingest = start_all(&system).await;
    settled(&system, ingest, 101).await;
    assert_eq!((judged(ingest, "accepted").await, judged(ingest, "unwanted").await), (100.0, 1.0));
    receiver.wait_for(1_000, LONG).await;
    system.until_count("SELECT count(*) FROM attempts", 1_000, SOON).await;
    assert_eq!(receiver.received().len(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_stored_holds_up_no_other() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let events = Event::closed(tenant, 20);
    let bad = events[7].id;
    system
        .database_session(&format!(
            "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
             CREATE TRIGGER refused BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.id = '{bad}') \
               EXECUTE FUNCTION refused()"
        ))
        .await;
    system.upstream.publish(&events).await;
    start_all(&system).await;
    receiver.wait_for(19, SOON).await;
    system.database_session("DROP TRIGGER refused ON events").await;
    receiver.wait_for(20, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untried_deliveries_of_a_crowded_millisecond_are_found_by_their_ids() {
    const EVENTS: usize = 20_000;
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (ledger, tenant) = (system.ledger_as("crowd", 1), Uuid::new_v4());
    let api = system.admin(tenant).await;
    for _ in 0..2 {
        api.create("https://localhost/", &["quote.closed"]).await;
    }
    let events: Vec<_> = (0..EVENTS).map(|_| new_event(tenant)).collect();
    for some in events.chunks(1_000) {
        ledger.events_store(some).await.unwrap();
    }
    let fetched = "SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint \
                   FROM pg_stat_user_tables WHERE relname ~ '^deliveries'";
    drop(ledger);
    let ended = async |name: &str| {
        let left = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND datname = current_database()"
        );
        system.until_count(&left, 0, SOON).await;
    };
    ended("crowd").await;
    let before = system.count(fetched).await;
    let ledger = system.ledger_as("look", 1);
    let asked: Vec<&NewEvent> = events.iter().step_by(100).collect();
    assert_eq!(ledger.deliveries_untried(&asked).await.unwrap().len(), 2 * asked.len());
    drop(ledger);
    ended("look").await;
    let fetched = system.count(fetched).await - before;
    let asked = i64::try_from(asked.len()).unwrap();
    assert!(fetched >= 2 * asked, "{fetched} rows were read: the statistics are in");
    assert!(fetched <= 4 * asked, "{fetched} rows were read for {asked} events of {EVENTS}");
}
