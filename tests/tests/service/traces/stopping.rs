//! A service is told to stop while its collector takes no spans.

use std::time::{Duration, Instant};

use end_to_end::processes::{free_address, with_api_address};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;

/// `shutdown.deadline`: far more than the exporter's second. A process that hangs fails two seconds later.
const DEADLINE: Duration = Duration::from_secs(10);

/// A collector that accepts connections and never answers. Each has an export.
struct Silent {
    _listener: TcpListener,
    _exports: Vec<TcpStream>,
}

/// Runs a test of all three services, each with an export under way that only the collector can end.
async fn exporting(test: impl AsyncFnOnce([Process; 3], Silent)) {
    let address = free_address();
    let listener = TcpListener::bind(address).await.unwrap();
    let settings = vec![
        ("TRACES__ENDPOINT", format!("http://{address}")),
        ("TRACES__TIMEOUT", "1h".to_owned()),
        ("SHUTDOWN__DEADLINE", format!("{}s", DEADLINE.as_secs())),
    ];
    let system = TestSystem::prepared(Options { settings, ..Options::default() }).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let variables = with_api_address(&system).await;
    let api = Process::start("api-service", &variables).await;
    let ingest = Process::start("event-ingest", &variables).await;
    let dispatcher = Process::start("dispatcher", &variables).await;
    system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    publish(&system, tenant, &[]).await;
    let mut exports = Vec::new();
    while exports.len() < 3 {
        let (export, _) = timeout(SOON, listener.accept()).await.expect("each exports").unwrap();
        exports.push(export);
    }
    test([api, ingest, dispatcher], Silent { _listener: listener, _exports: exports }).await;
}

/// Tells all to stop. Each ends well and before the deadline, and says that spans are lost.
async fn stop_in_time(processes: [Process; 3]) {
    let began = Instant::now();
    for process in &processes {
        process.ask_to_stop();
    }
    for mut process in processes {
        let (status, took) = (process.wait().await, began.elapsed());
        assert!(status.success() && took < DEADLINE, "{status} after {took:?}: {}", process.logged());
        assert!(process.logged().contains("the collector did not take the last spans"), "{}", process.logged());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_holds_up_no_stop() {
    exporting(async |processes, silent| {
        stop_in_time(processes).await;
        drop(silent);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_gone_holds_up_no_stop() {
    exporting(async |processes, silent| {
        drop(silent);
        for process in &processes {
            let is_told = || async { process.logged().contains("the collector accepts no spans").then_some(()) };
            eventually("it has seen that", SOON, is_told).await;
        }
        stop_in_time(processes).await;
    })
    .await;
}
