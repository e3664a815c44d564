//! Takes ended spans to the collector, in batches.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use egress::Internal;
use http::{HeaderValue, Method, header::CONTENT_TYPE};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    CollectorHeaders, otlp,
    record::Record,
    stats::{DROPPED, EXPORTED, REFUSED, Stats},
};

/// How many spans one export has, at most.
const BATCH: usize = 512;
/// How often, and how long each time, a batch that is not full waits for more. Nothing wakes the exporter meanwhile.
const PAUSES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The pauses between tries of a batch that the collector did not take, doubling.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a batch is tried, since its first try. Then it makes way for the next, in case that it is the batch itself
/// that the collector cannot take.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// The time for the last spans after closing: a collector that never answers must not hold up the end of a process.
const END: Duration = Duration::from_secs(1);

/// Exports spans, one batch at a time. Nobody waits for it.
pub struct Exporter {
    pub(crate) ended: mpsc::Receiver<Record>,
    /// How many spans the batch under way has.
    pub(crate) in_hand: usize,
    pub(crate) client: Internal,
    pub(crate) headers: CollectorHeaders,
    pub(crate) resource: otlp::Resource,
    pub(crate) version: &'static str,
    pub(crate) stats: Stats,
    /// True since an export failed, until one succeeds.
    pub(crate) is_failing: bool,
}

/// Why the collector did not take a batch.
enum Failure {
    /// It may take it later.
    Away(String),
    /// It never will.
    Refused(String),
}

impl Exporter {
    /// Exports until `closing`, and then what is left: only until the collector is unavailable, and for a second. What is left
    /// then is dropped.
    pub async fn run(mut self, closing: CancellationToken) {
        let end = async {
            closing.cancelled().await;
            sleep(END).await;
        };
        let is_all_done = tokio::select! {
            is_all_done = self.work(&closing) => is_all_done,
            () = end => false,
        };
        if !is_all_done {
            let waiting = std::iter::from_fn(|| self.ended.try_recv().ok()).count();
            let left = self.in_hand + waiting;
            self.stats.count(DROPPED, left);
            tracing::warn!(dropped = left, "the collector did not take the last spans in time");
        }
    }

    /// Returns whether no span is left.
    async fn work(&mut self, closing: &CancellationToken) -> bool {
        loop {
            let batch = self.next_batch(closing).await;
            if batch.is_empty() {
                return true;
            }
            self.in_hand = batch.len();
            if !self.export(batch, closing).await {
                return false;
            }
            self.in_hand = 0;
        }
    }

    /// Waits for spans, and a little for more. Returns none when there will be no more.
    async fn next_batch(&mut self, closing: &CancellationToken) -> Vec<Record> {
        let mut batch = Vec::new();
        closing.run_until_cancelled(self.ended.recv_many(&mut batch, BATCH)).await;
        for _ in 0..PAUSES {
            if batch.is_empty() || batch.len() + self.ended.len() >= BATCH {
                break;
            }
            closing.run_until_cancelled(sleep(PAUSE)).await;
        }
        while batch.len() < BATCH
            && let Ok(record) = self.ended.try_recv()
        {
            batch.push(record);
        }
        batch
    }

    /// Exports a batch, trying again while the collector is away. Then spans gather in the queue, and are dropped once it
    /// is full. Returns whether the batch is done with: after `closing`, one that failed is left in hand.
    async fn export(&mut self, batch: Vec<Record>, closing: &CancellationToken) -> bool {
        let spans = batch.len();
        let body = otlp::request(&self.resource, self.version, batch);
        let mut pause = SHORTEST_PAUSE;
        let begun = Instant::now();
        loop {
            match self.send(body.clone()).await {
                Ok(refused) => {
                    let refused = refused.min(spans);
                    self.stats.count(EXPORTED, spans - refused);
                    self.stats.count(REFUSED, refused);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("the collector accepts spans again");
                    }
                    return true;
                }
                Err(Failure::Refused(why)) => {
                    self.fail(&why);
                    self.stats.count(REFUSED, spans);
                    return true;
                }
                Err(Failure::Away(why)) => {
                    self.fail(&why);
                    if closing.is_cancelled() {
                        return false;
                    }
                    if begun.elapsed() >= PATIENCE {
                        self.stats.count(DROPPED, spans);
                        return true;
                    }
                }
            }
            closing.run_until_cancelled(sleep(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Logs once that the collector accepts no spans.
    fn fail(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                why,
                "traces.endpoint (WEBHOOKS__TRACES__ENDPOINT): the collector accepts no spans; all else continues"
            );
        }
    }

    /// Sends a batch. Returns how many of its spans the collector refused.
    async fn send(&self, body: Bytes) -> Result<usize, Failure> {
        let mut headers = self.headers.to_map();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(otlp::CONTENT_TYPE));
        let mut status = None;
        let answer = match self.client.send_noting(&mut status, Method::POST, headers, body).await {
            Ok(answer) => answer,
            // It has the spans. Sent again, they would be there twice.
            Err(_) if matches!(status, Some(200..300)) => return Ok(0),
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                return Err(Failure::Away(format!("{error}{cause}")));
            }
        };
        match answer.status {
            200..300 => Ok(otlp::refused(&answer.body)),
            // What OTLP calls retryable.
            status @ (429 | 502..=504) => Err(Failure::Away(format!("it answered {status}"))),
            status => Err(Failure::Refused(format!("it answered {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    use super::*;
    use crate::{Kind, SampleRatio, Traces, TracesConfig};

    const SOON: Duration = Duration::from_secs(10);

    /// An exporter to an address, with so many spans to export.
    fn exporter(address: std::net::SocketAddr, spans: usize) -> Exporter {
        let config = TracesConfig {
            endpoint: format!("http://{address}"),
            headers: CollectorHeaders::default(),
            timeout: SOON * 10,
            ratio: SampleRatio::of(1.0),
            extra_ca_pem: None,
            service: "tests",
            version: "0",
        };
        let (traces, exporter) = Traces::new(config).unwrap();
        for _ in 0..spans {
            traces.begin(Kind::Server, None, OffsetDateTime::now_utc()).unwrap().end(OffsetDateTime::now_utc());
        }
        exporter
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_collector_holds_up_no_end_longer_than_a_second() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = exporter(silent.local_addr().unwrap(), BATCH + 88);
        let (stats, closing) = (exporter.stats.clone(), CancellationToken::new());
        let running = tokio::spawn(exporter.run(closing.clone()));
        let _under_way = silent.accept().await.unwrap();
        sleep(SOON).await;
        assert!(!running.is_finished());
        let closed_at = Instant::now();
        closing.cancel();
        running.await.unwrap();
        assert!(closed_at.elapsed().abs_diff(END) < END / 10, "{:?}", closed_at.elapsed());
        assert_eq!(stats.dropped(), 600);
    }

    #[tokio::test]
    async fn at_the_end_a_collector_that_is_away_is_tried_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let exporter = exporter(listener.local_addr().unwrap(), BATCH + 88);
        let (stats, closing) = (exporter.stats.clone(), CancellationToken::new());
        closing.cancel();
        let running = tokio::spawn(exporter.run(closing));
        // It hangs up, the second time too.
        drop(listener.accept().await.unwrap());
        assert!(timeout(END, listener.accept()).await.is_err(), "it was tried again");
        timeout(SOON, running).await.unwrap().unwrap();
        assert_eq!(stats.dropped(), 600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_never_taken_makes_way_for_the_next() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let exporter = exporter(nobody, BATCH + 88);
        let stats = exporter.stats.clone();
        let running = tokio::spawn(exporter.run(CancellationToken::new()));
        sleep(PATIENCE - LONGEST_PAUSE).await;
        assert_eq!(stats.dropped(), 0);
        sleep(LONGEST_PAUSE * 3).await;
        assert_eq!(stats.dropped(), 512);
        running.abort();
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_says_what_its_head_says() {
        for (status, exported) in [("200 OK", true), ("503 Service Unavailable", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let exporter = exporter(listener.local_addr().unwrap(), 0);
            let collector = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: 10\r\n\r\nab");
                stream.write_all(head.as_bytes()).await.unwrap();
            };
            let (sent, ()) = tokio::join!(exporter.send(Bytes::from_static(b"spans")), collector);
            assert_eq!(sent.is_ok(), exported, "{status}");
        }
    }
}
