//! The ops server on a real port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use service_kit::{OpsServer, Readiness, metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const ANYWHERE: &str = "127.0.0.1:0";

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn serve(readiness: Readiness) -> Running {
    let mut registry = Registry::default();
    let counter: Counter = Counter::default();
    counter.inc_by(3);
    registry.register("events", "Events seen", counter);
    let durations = metrics::seconds();
    durations.observe(0.3);
    registry.register("attempt_seconds", "Time of an attempt", durations);
    let server = OpsServer::bind(ANYWHERE.parse().unwrap()).await.unwrap();
    let (address, stop) = (server.local_addr(), CancellationToken::new());
    let task = tokio::spawn(server.serve(Arc::new(registry), readiness, stop.clone()));
    Running { address, stop, task }
}

impl Running {
    /// Returns the status code, the head in lower case, and the body.
    async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("{method} {path} HTTP/1.1\r\nhost: ops\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = timeout(Duration::from_secs(5), exchange).await.expect("an answer, and its end");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }
}

#[tokio::test]
async fn readiness_says_what_is_missing() {
    let ops = serve(
        Readiness::new()
            .check("database", || async { Ok(()) })
            .check("broker", || async { Err("not connected".to_owned()) }),
    )
    .await;
    let (status, head, body) = ops.ask("GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(body, r#"{"ready":false,"checks":{"broker":"not connected","database":"ok"}}"#);
}

#[tokio::test]
async fn readiness_ends_when_shutdown_begins() {
    let shutdown = CancellationToken::new();
    let ops = serve(Readiness::new().check("database", || async { Ok(()) }).draining(shutdown.clone())).await;
    let (status, _, body) = ops.ask("GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"ready":true,"checks":{"database":"ok"}}"#));
    shutdown.cancel();
    let (status, _, body) = ops.ask("GET", "/readyz").await;
    assert_eq!((status, body.as_str()), (503, r#"{"ready":false,"checks":{"process":"shutting down"}}"#));
    let (status, head, body) = ops.ask("GET", "/healthz").await;
    assert_eq!((status, body.as_str()), (200, "ok"), "alive all the same");
    assert!(head.contains("connection: close"), "one request per connection: {head}");
}

#[tokio::test]
async fn metrics_are_in_the_open_metrics_format() {
    let ops = serve(Readiness::new()).await;
    let (status, head, body) = ops.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(content_type), "{head}");
    assert!(body.contains("\nevents_total 3\n"), "{body}");
    assert!(body.contains("attempt_seconds_bucket{le=\"0.5\"} 1\n"), "{body}");
    assert!(body.contains("attempt_seconds_bucket{le=\"0.2\"} 0\n"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn only_three_paths_and_two_methods_are_served() {
    let ops = serve(Readiness::new()).await;
    for path in ["/", "/metrics/", "/healthz/x", "/admin"] {
        assert_eq!(ops.ask("GET", path).await.0, 404, "{path}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, head, _) = ops.ask("POST", path).await;
        assert_eq!(status, 405, "{path}");
        assert!(head.contains("allow: get, head"), "{head}");
        let (status, _, body) = ops.ask("HEAD", path).await;
        assert_eq!((status, body.as_str()), (200, ""), "{path}");
    }
    assert_eq!(ops.ask("GET", "/healthz?verbose").await.0, 200);
}

#[tokio::test]
async fn silent_clients_are_few_and_are_dropped_after_two_seconds() {
    let ops = serve(Readiness::new()).await;
    let begin = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(ops.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ").await.unwrap();
        silent.push(stream);
    }
    assert_eq!(ops.ask("GET", "/healthz").await.0, 200);
    assert!(begin.elapsed() >= Duration::from_secs(2), "more clients at a time than there may be");
    let mut rest = Vec::new();
    let closed = timeout(Duration::from_secs(5), silent[0].read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the server still waits for the first client's headers");
}

#[tokio::test]
async fn it_stops_when_asked_even_with_a_silent_client() {
    let ops = serve(Readiness::new()).await;
    let mut silent = TcpStream::connect(ops.address).await.unwrap();
    silent.write_all(b"GET /").await.unwrap();
    assert_eq!(ops.ask("GET", "/healthz").await.0, 200);
    ops.stop.cancel();
    timeout(Duration::from_secs(5), ops.task).await.expect("an end").unwrap();
    assert!(TcpStream::connect(ops.address).await.is_err());
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_setting() {
    let first = OpsServer::bind(ANYWHERE.parse().unwrap()).await.unwrap();
    let address = first.local_addr();
    let error = OpsServer::bind(address).await.unwrap_err();
    let said = format!("ops.listen (WEBHOOKS__OPS__LISTEN): cannot listen on {address}: Address already in use");
    assert!(error.to_string().starts_with(&said), "{error}");
}
