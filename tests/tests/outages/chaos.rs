//! A short storm with a fixed seed.

use std::time::Duration;

use end_to_end::{
    chaos::{Options, Setup, run},
    servers::repository,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_storm_loses_nothing_and_leaves_nothing_wrong() {
    let options = Options { seed: 4, length: Duration::from_secs(25), rate: 16, setup: Setup::Pair };
    let report = run(options, &repository().join("target/chaos"), std::future::pending()).await;
    let report = report.expect("nobody interrupts it");
    println!("{report}");
    assert!(report.is_good(), "{report}");
    assert!(report.audit.counts.delivered > 500, "{report}");
    assert!(report.faults >= 8, "{report}");
}
