//! The database's clock.

use end_to_end::{
    api::Api,
    clock,
    processes::Process,
    proxy::{Mode, Reserved, redirected, target},
    system::{Options, System, TestSystem, metric},
    wait::{SOON, until},
};
use futures_util::FutureExt;
use ledger::{Ledger, LedgerConfig};
use prometheus_client::registry::Registry;
use service_kit::{DatabaseWatch, EssentialTasks};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::database::ALL;

const OFFSET: &str = "webhooks_database_clock_offset_seconds";

/// Puts the database's clock back by an hour, for sessions that begin later.
async fn put_an_hour_back(system: &System) {
    clock::make_settable(system).await;
    clock::set_ahead(system, -3600).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_time_is_known_from_the_first_reading_on_and_while_the_database_is_away() {
    let system = TestSystem::prepared(Options::default()).await;
    put_an_hour_back(&system).await;
    let reserved = Reserved::take();
    let config = LedgerConfig {
        url: redirected(&system.database_url, reserved.address()),
        password_file: None,
        tls: Default::default(),
        max_connections: 1,
        call_timeout: ledger::CALL_TIMEOUT,
        application_name: "tests",
    };
    let stop = CancellationToken::new();
    let watch = DatabaseWatch::start(
        &Ledger::new(&config).unwrap(),
        &mut Registry::default(),
        &EssentialTasks::default(),
        stop.clone(),
    );
    let _stop = stop.drop_guard();
    assert!(watch.known().now_or_never().is_none(), "nobody listens there");
    let proxy = reserved.forward_to(target(&system.database_url));
    let hour = time::Duration::HOUR;
    let is_right = |now: OffsetDateTime| (OffsetDateTime::now_utc() - hour - now).abs() < time::Duration::MINUTE;
    tokio::time::timeout(SOON, watch.known()).await.expect("the clock is read");
    let first = watch.now();
    assert!(is_right(first) && watch.is_off(), "{first}");
    proxy.set(Mode::Refuse);
    let later = watch.now();
    assert!(is_right(later) && later >= first, "{later} after {first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off_is_shown_and_logged_once_and_the_service_stays_ready() {
    let system = TestSystem::prepared(Options::default()).await;
    put_an_hour_back(&system).await;
    for name in ALL {
        let process = Process::start(name, &system.variables).await;
        let warnings = || process.logged().lines().filter(|line| line.contains("clock is not the database")).count();
        until("the clock was read and the warning logged", SOON, || async {
            (metric(process.ops, OFFSET).await - 3600.0).abs() < 60.0 && warnings() > 0
        })
        .await;
        // A second reading changes the figure, if only by a microsecond.
        let first = metric(process.ops, OFFSET).await;
        until("it was read again", SOON, || async { metric(process.ops, OFFSET).await != first }).await;
        assert_eq!(warnings(), 1, "{}", process.log.display());
        assert_eq!(Api { address: process.ops, session: None }.get("/readyz").await.status, 200);
    }
}
