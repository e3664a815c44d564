//! The cursor of untried deliveries: each waiting delivery before it is in the index.

use domain::DeliveryId;
use end_to_end::{
    system::{Service, TestSystem},
    wait::SOON,
};
use ledger::Indexed;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::retention::{DAY, Subscribed, leader, ledger, options, rows, today};

/// Two days ago.
const FIRED: &str = "now() - interval '2 days'";
const DUE: &str = "SELECT count(*) FROM deliveries WHERE next_attempt_at = created_at";

fn end() -> Uuid {
    DeliveryId::bound_at(today() - DAY)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_gives_untried_deliveries_their_creation_as_their_due_time_in_steps_and_skips_none() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, end) = (leader(&system).await, end());
    subscribed.past(&system, 1_500, "pending", FIRED, FIRED).await;
    subscribed.past(&system, 500, "succeeded", &format!("{FIRED} + interval '1 minute'"), FIRED).await;
    subscribed.past(&system, 1, "retrying", &format!("{FIRED} + interval '2 minutes'"), FIRED).await;
    subscribed.past(&system, 7, "pending", "now()", "now()").await;
    let created = system.sql("SELECT min(created_at) FROM deliveries").await[0].get::<_, std::time::SystemTime>(0);
    let (mut cursor, mut steps) = (Uuid::nil(), Vec::new());
    while cursor < end {
        let step = leader.untried_index(cursor, end).await.unwrap().unwrap();
        assert_eq!(step.earliest, (step.indexed > 0).then(|| OffsetDateTime::from(created)));
        steps.push((step.looked, step.indexed));
        cursor = step.indexed_before;
        assert_eq!(leader.generation().await.unwrap().indexed_before, cursor);
    }
    // A step begins with the last row of the one before.
    assert_eq!(steps, [(1_000, 1_000), (1_000, 500), (3, 0)]);
    assert_eq!((system.count(DUE).await, rows(&system, "unsuccessful_deliveries").await), (1_500, 1_501));
}

/// As when both clocks are set back: what comes now is untried, and has ids before the cursor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_back_when_the_clock_is_set_back_and_stays_during_a_rebuild() {
    let system = TestSystem::prepared(options()).await;
    let mut leader = leader(&system).await;
    let (late, early) = (end(), DeliveryId::bound_at(today() - DAY * 2));
    let moved = |to| Some(Indexed { indexed_before: to, looked: 0, indexed: 0, earliest: None });
    assert_eq!(leader.untried_index(Uuid::nil(), late).await.unwrap(), moved(late));
    assert_eq!(leader.untried_index(late, early).await.unwrap(), moved(early));
    let subscribed = Subscribed::new(&system).await;
    subscribed.past(&system, 3, "pending", "now() - interval '30 hours'", "now()").await;
    // The rebuild walks from the cursor, and may have passed what would get a due time now.
    leader.rebuild_plan(Uuid::new_v4()).await.unwrap();
    assert_eq!(leader.untried_index(early, late).await.unwrap(), None);
    assert_eq!((leader.generation().await.unwrap().indexed_before, system.count(DUE).await), (early, 0));
    leader.rebuild_finish().await.unwrap();
    assert_eq!(leader.untried_index(early, late).await.unwrap().map(|step| step.indexed), Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_for_an_attempt_that_is_being_recorded_and_leaves_its_due_time() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, end) = (leader(&system).await, end());
    subscribed.past(&system, 1, "pending", FIRED, FIRED).await;
    let due = "UPDATE deliveries SET state = 'retrying', next_attempt_at = now() + interval '1 hour'";
    let recorded = system.database_session(&format!("BEGIN; {due}")).await;
    leader.untried_index(Uuid::nil(), end).await.unwrap_err();
    assert_eq!(leader.generation().await.unwrap().indexed_before, Uuid::nil(), "it skips no row");
    let (step, ()) = tokio::join!(leader.untried_index(Uuid::nil(), end), async {
        system.wait_for_locked_out(1).await;
        recorded.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(step.unwrap().map(|step| (step.looked, step.indexed)), Some((1, 0)));
    assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE next_attempt_at > now()").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_data_the_server_does_not_take_is_found_and_passed_over() {
    let (system, subscribed) = Subscribed::prepared(options()).await;
    let (mut leader, hot, end) = (leader(&system).await, ledger(&system), end());
    subscribed.past(&system, 5, "pending", FIRED, FIRED).await;
    let next = leader.untried_next(Uuid::nil(), end).await.unwrap();
    assert_eq!((next.len(), hot.untried_faulty(&next).await), (5, None));
    let refuse = format!("CHECK (id <> '{}' OR next_attempt_at IS NULL)", next[2]);
    system.sql(&format!("ALTER TABLE deliveries ADD CONSTRAINT refused {refuse}")).await;
    leader.untried_index(Uuid::nil(), end).await.unwrap_err();
    let faulty = hot.untried_faulty(&next).await.unwrap();
    assert_eq!((faulty, system.count(DUE).await), (next[2], 0));
    drop(leader);
    system.start(Service::Ingest).await;
    let cursor = format!("SELECT count(*) FROM broker_generation WHERE indexed_before > '{}'", next[4]);
    system.until_count(&cursor, 1, SOON).await;
    assert_eq!(system.count(DUE).await, 4, "all but the row that the server does not take");
}
