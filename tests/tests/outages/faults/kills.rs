//! `kill -9` of each of the three processes in the middle of 2,000 events.

use domain::EventType;
use end_to_end::{
    receiver::{Receiver, always},
    system::{Options, TestSystem},
    wait::{SOON, until},
};

use crate::faults::{
    API, DISPATCHER, INGEST, LONG, Processes, settings,
    storm::{EVENTS, Storm, points},
};

/// `dispatcher.max_in_flight` of [`settings`].
const IN_FLIGHT: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_dispatcher_loses_nothing_and_repeats_only_what_was_in_flight() {
    let system = TestSystem::prepared(Options { settings: settings(), ..Options::default() }).await;
    let mut processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish();
    let (kills, mut lost) = (points(1, 3, EVENTS), 0);
    for point in &kills {
        storm.steady.wait_for(*point, LONG).await;
        processes.dispatcher.kill();
        // The database may still commit what the process had sent, after it is counted here.
        let unrecorded = storm.posts().saturating_sub(storm.recorded().await + lost);
        println!("killed after {} POSTs; {unrecorded} were in flight", storm.posts());
        lost += unrecorded;
        processes.dispatcher = processes.again(DISPATCHER).await;
    }
    publishing.rest().await;
    let tally = storm.settle("dispatcher killed", &[&processes.dispatcher]).await;
    assert!(tally.repeated <= kills.len() * IN_FLIGHT, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_ingest_and_the_api_loses_no_webhook_that_was_confirmed_and_repeats_nothing() {
    let system = TestSystem::prepared(Options { settings: settings(), ..Options::default() }).await;
    let mut processes = Processes::start(&system).await;
    let storm = Storm::prepare(&system).await;
    let late = Receiver::start(&system.ca, always(200));
    let publishing = storm.publish();
    let mut confirmed = Vec::new();
    for point in points(2, 3, storm.expected()) {
        until("ingest is in the middle", LONG, || async { storm.stored().await >= point }).await;
        processes.ingest.kill();
        let path = format!("/late/{}", confirmed.len());
        confirmed.push(storm.admin.create(&late.url(&path), &["return_note.created"]).await.id);
        processes.api.kill();
        println!("killed after {} of {} deliveries were stored", storm.stored().await, storm.expected());
        (processes.api, processes.ingest) = tokio::join!(processes.again(API), processes.again(INGEST));
    }
    publishing.rest().await;
    let tally = storm.settle("ingest and API killed", &[&processes.dispatcher]).await;
    assert_eq!(tally.repeated, 0, "a job that is published twice is attempted once");
    let last = storm.event(EventType::ReturnNoteCreated).with_data(r#"{"last":true}"#);
    let is_last = |body: &[u8]| String::from_utf8_lossy(body).contains("last");
    system.upstream.publish(&[last]).await;
    let received = late
        .wait_until(SOON, |received| received.iter().filter(|one| is_last(&one.body)).count() == confirmed.len())
        .await;
    let mut paths: Vec<_> = received.iter().filter(|one| is_last(&one.body)).map(|one| &one.path).collect();
    paths.sort();
    assert_eq!(paths, ["/late/0", "/late/1", "/late/2"]);
    for id in &confirmed {
        storm.admin.webhook(id).await;
    }
}
