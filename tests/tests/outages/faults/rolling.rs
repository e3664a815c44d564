//! Processes are replaced one after another while they work. Each successor runs before its predecessor ends.

use std::{collections::VecDeque, time::Duration};

use end_to_end::{
    processes::{Process, with_api_address},
    system::{Options, TestSystem},
};

use crate::faults::{
    API, DISPATCHER, INGEST, LONG, settings,
    storm::{EVENTS, Storm, points},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_ingests_and_dispatchers_under_steady_load_loses_nothing_and_repeats_nothing() {
    let system = TestSystem::prepared(Options { settings: settings(), ..Options::default() }).await;
    let variables = with_api_address(&system).await;
    let start = async |name| Process::start(name, &variables).await;
    let (_api, ingest, other_ingest) = tokio::join!(start(API), start(INGEST), start(INGEST));
    let (dispatcher, other_dispatcher) = tokio::join!(start(DISPATCHER), start(DISPATCHER));
    let storm = Storm::prepare(&system).await;
    let publishing = storm.publish_steadily(10, Duration::from_millis(100));
    let mut running = VecDeque::from([
        (INGEST, ingest),
        (DISPATCHER, dispatcher),
        (INGEST, other_ingest),
        (DISPATCHER, other_dispatcher),
    ]);
    for point in points(9, running.len(), EVENTS * 2 / 3) {
        storm.steady.wait_for(point, LONG).await;
        let (name, oldest) = running.pop_front().unwrap();
        running.push_back((name, start(name).await));
        assert!(!publishing.is_finished(), "it is replaced under load");
        assert_eq!(oldest.terminate().await.code(), Some(0));
    }
    publishing.await.unwrap();
    let dispatchers: Vec<_> = running.iter().filter(|(name, _)| *name == DISPATCHER).map(|(_, one)| one).collect();
    let tally = storm.settle("rolling restart of both", &dispatchers).await;
    assert_eq!(tally.repeated, 0);
}
