//! Dispatchers are replaced one after another while they work.

use std::{collections::VecDeque, time::Duration};

use end_to_end::{
    processes::{Process, with_api_address},
    system::{Options, System},
};

use crate::{
    API, DISPATCHER, INGEST, LONG, settings,
    storm::{EVENTS, Storm, points},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_dispatchers_loses_nothing_and_repeats_nothing() {
    System::prepared(Options { settings: settings(), ..Options::default() }, async |system| {
        let environment = with_api_address(&system).await;
        let start = async |name| Process::start(name, &environment).await;
        let (_api, _ingest, old, older) = tokio::join!(start(API), start(INGEST), start(DISPATCHER), start(DISPATCHER));
        let storm = Storm::prepare(&system).await;
        storm.answer_after(Duration::from_millis(200));
        let publishing = storm.publish();
        let mut running = VecDeque::from([older, old]);
        for point in points(8, 3, EVENTS / 2) {
            storm.steady.wait_for(point, LONG).await;
            running.push_back(start(DISPATCHER).await);
            let oldest = running.pop_front().unwrap();
            assert!(storm.unfinished().await > 0, "it is replaced in the middle");
            assert_eq!(oldest.terminate().await.code(), Some(0));
        }
        storm.answer_after(Duration::from_millis(10));
        publishing.await.unwrap();
        let running: Vec<_> = running.iter().collect();
        let tally = storm.settle("rolling restart", &running).await;
        assert_eq!(tally.repeated, 0);
    })
    .await;
}
