//! What all measurements share: private servers, the receivers, a publisher and the bare pipe.

use std::{path::PathBuf, time::Duration};

use end_to_end::{
    outsider::sql,
    servers::{PrivateServers, Server, Servers},
    wait::eventually,
};
use tokio_util::sync::CancellationToken;

use crate::{
    bare::Bare, latencies::Latencies, load::Load, publisher::Publisher, round::ROUND_TIMEOUT, sink::Sink,
    usage::of_tree,
};

/// How late the last messages of a paced run may be. What has not come by then counts as that slow.
const STRAGGLER_TIMEOUT: Duration = Duration::from_secs(15);

/// The most deliveries that a flood has on their way: more than the service and the pipe take at a time, about a
/// second's work of 20 KiB each. Beyond that, the flood looks for room every `LOOK_EVERY` messages.
const ON_THEIR_WAY: u64 = 2_000;
const LOOK_EVERY: u64 = 20;

/// What the environments of all measurements share.
pub(crate) struct Bench {
    // Fields drop in this order: clients before servers.
    pub(crate) bare: Bare,
    pub(crate) publisher: Publisher,
    pub(crate) sink: Sink,
    servers: PrivateServers,
}

impl Bench {
    /// Starts servers with a data folder of their own. That takes about ten seconds.
    pub(crate) async fn start() -> Self {
        let servers = PrivateServers::start();
        durable(servers.servers()).await;
        let sink = Sink::start("sink");
        let amqp_url = &servers.servers().amqp_url;
        Self { bare: Bare::start(amqp_url, &sink).await, publisher: Publisher::connect(amqp_url).await, sink, servers }
    }

    pub(crate) const fn servers(&self) -> &Servers {
        self.servers.servers()
    }

    pub(crate) fn postgres_cpu(&self) -> f64 {
        of_tree(self.servers.pid(Server::Postgres))
    }

    pub(crate) fn rabbitmq_cpu(&self) -> f64 {
        of_tree(self.servers.pid(Server::Rabbitmq))
    }

    /// Publishes as fast as possible until all have arrived. Deliveries on their way are bounded, so the rate lasts.
    /// The part `backlog` measures what a long queue costs.
    pub(crate) async fn flood(&self, load: &Load, count: u64, fan_out: u64) {
        let before = self.sink.requests();
        let arrived = |deliveries: u64| self.sink.wait_for(before + deliveries, ROUND_TIMEOUT);
        let room_for = async |number: u64| {
            let sent = number * fan_out;
            if number.is_multiple_of(LOOK_EVERY) && sent > ON_THEIR_WAY {
                arrived(sent - ON_THEIR_WAY).await;
            }
        };
        self.publisher.flood_within(load, count, room_for).await;
        arrived(count * fan_out).await;
    }

    /// Publishes at a fixed pace and collects the latencies of a group of receivers, which has to get each message
    /// once.
    pub(crate) async fn paced(&self, load: Load, group: &str, per_second: f64, lasting: Duration) -> Latencies {
        self.sink.take(group);
        let sent = self.publisher.pace(load, per_second, lasting).await.expect("publishing does not panic");
        self.arrived(group, sent).await
    }

    /// Like `paced`, for as long as `work` takes.
    pub(crate) async fn paced_beside<T>(
        &self,
        load: Load,
        group: &str,
        per_second: f64,
        work: impl Future<Output = T>,
    ) -> (Latencies, T) {
        self.sink.take(group);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let publishing = self.publisher.pace_while(load, per_second, move |_| !stop.is_cancelled());
        let result = work.await;
        drop(guard);
        let sent = publishing.await.expect("publishing does not panic");
        (self.arrived(group, sent).await, result)
    }

    async fn arrived(&self, group: &str, sent: u64) -> Latencies {
        let end = std::time::Instant::now() + STRAGGLER_TIMEOUT;
        eventually("all have arrived or are late", STRAGGLER_TIMEOUT * 2, || async {
            (self.sink.arrived(group) >= sent || std::time::Instant::now() > end).then_some(())
        })
        .await;
        self.sink.take(group).with_missing(sent, STRAGGLER_TIMEOUT.as_secs_f64() * 1000.0)
    }

    pub(crate) fn postgres_log(&self) -> PathBuf {
        let pid = self.servers.pid(Server::Postgres);
        std::fs::read_link(format!("/proc/{pid}/fd/2")).expect("the server runs")
    }

    /// Writes out what a measurement has left to write, so that it does not burden the next one.
    pub(crate) async fn settle(&self) {
        sql(&self.servers().database_url, "CHECKPOINT").await;
    }
}

/// Checks that writes are durable: figures without durability are worth nothing.
async fn durable(servers: &Servers) {
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        let rows = sql(&servers.database_url, &format!("SHOW {setting}")).await;
        let value: String = rows[0].get(0);
        println!("PostgreSQL: {setting} = {value}");
        assert_eq!(value, "on", "measuring without {setting} would mean nothing");
    }
}
