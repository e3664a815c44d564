//! Many receivers that fail together, as on a platform that is down: what they do to a tenant with a quick receiver.

use std::{
    cell::OnceCell,
    process::Command,
    time::{Duration, Instant},
};

use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    bench::Bench,
    environment::Environment,
    latency::percentiles,
    load::{Load, SMALL},
    publisher::Publisher,
    report::Figure,
    sink::Sink,
};

const ALONE: Duration = Duration::from_secs(10);
/// The trouble is new: nobody knows yet who is slow.
const NEW: Duration = Duration::from_secs(5);
const BESIDE: Duration = Duration::from_secs(30);
/// The length of the part of a measurement that shows its best rate.
const WINDOW: Duration = Duration::from_secs(3);
/// No delivery may be later than this, in milliseconds.
const LATEST: f64 = 2_000.0;
/// The maximum of megabytes of a dispatcher, with the kernel's memory for its sockets.
const MEMORY: f64 = 150.0;
/// Retries come back soon.
const SCHEDULE: &str = "10s,20s,30s,45s,60s";
const LARGE: usize = 250 * 1024;

/// The path of receivers that hang together.
const HANGS: &str = "/hang/platform";

/// The behaviour of the failing receivers.
#[derive(Clone, Copy)]
enum Receivers {
    /// As this path of the sink says.
    Path(&'static str),
    /// They take the connection and are silent in TLS.
    Silent,
    /// They have a certificate that the service does not trust.
    Untrusted,
}

/// Receivers that fail together, and the tenant beside them.
struct Case {
    name: &'static str,
    receivers: Receivers,
    tenants: usize,
    webhooks: usize,
    /// Deliveries a second of all together.
    per_second: f64,
    size: usize,
    quick_per_second: f64,
    quick_size: usize,
    lasting: Duration,
    schedule: &'static str,
    /// True if the receivers answer again in the end, and held jobs are delivered.
    comes_back: bool,
}

const CASE: Case = Case {
    name: "",
    receivers: Receivers::Path(HANGS),
    tenants: 8,
    webhooks: 1,
    per_second: 200.0,
    size: SMALL,
    quick_per_second: 50.0,
    quick_size: SMALL,
    lasting: BESIDE,
    schedule: SCHEDULE,
    comes_back: false,
};

const CASES: [Case; 8] = [
    Case { name: "a_eight_tenants_hang", ..CASE },
    Case { name: "b_platform_hangs", tenants: 200, webhooks: 5, per_second: 300.0, comes_back: true, ..CASE },
    Case {
        name: "c_platform_is_late",
        receivers: Receivers::Path("/late/3000/platform"),
        tenants: 200,
        webhooks: 5,
        per_second: 300.0,
        ..CASE
    },
    Case {
        name: "d_long_bodies_hang",
        tenants: 4,
        per_second: 40.0,
        size: LARGE,
        quick_per_second: 5.0,
        quick_size: 100 * 1024,
        ..CASE
    },
    Case { name: "e_silent_in_tls", receivers: Receivers::Silent, ..CASE },
    // As in d, 40 a second: 200 would be 50 MB a second, which broker and ledger have to write first.
    Case {
        name: "e_answered_and_unread",
        receivers: Receivers::Path("/unread/platform"),
        per_second: 40.0,
        size: LARGE,
        ..CASE
    },
    Case {
        name: "f_every_second_hangs",
        receivers: Receivers::Path("/second/platform"),
        tenants: 10,
        webhooks: 10,
        per_second: 500.0,
        ..CASE
    },
    // Each attempt is a handshake of its own, and a port that stays taken for a minute.
    Case {
        name: "g_untrusted_certificate",
        receivers: Receivers::Untrusted,
        tenants: 1,
        per_second: 600.0,
        lasting: Duration::from_secs(120),
        schedule: "1m,5m",
        ..CASE
    },
];

/// Measures the cases whose names begin with one of these, or all.
pub(super) async fn measure(bench: &Bench, names: &str) -> Vec<Figure> {
    let is_chosen = |case: &&Case| names.is_empty() || names.split(' ').any(|name| case.name.starts_with(name));
    let mut figures = Vec::new();
    for case in CASES.iter().filter(is_chosen) {
        let settings = [("RETRY__SCHEDULE", case.schedule)];
        figures.extend(Environment::with(bench, &settings, async |environment| beside(environment, case).await).await);
    }
    figures
}

async fn beside(environment: &Environment<'_>, case: &Case) -> Vec<Figure> {
    let (silent, untrusted) = (Silent::start().await, OnceCell::new());
    let quick = environment.webhooks(1, 1, "/ok/ok").await;
    let troubled = match case.receivers {
        Receivers::Path(path) => {
            // Another host than the quick tenant's: connections are pooled by host.
            let url = environment.bench.sink.url(path).replace("localhost", "127.0.0.1");
            environment.webhooks_at(case.tenants, case.webhooks, &url).await
        }
        Receivers::Silent => environment.webhooks_at(case.tenants, case.webhooks, &silent.url).await,
        Receivers::Untrusted => {
            environment
                .webhooks_at(
                    case.tenants,
                    case.webhooks,
                    &untrusted.get_or_init(|| Sink::start("untrusted")).url("/ok/platform"),
                )
                .await
        }
    };
    environment.start_warm(&quick).await;
    let load = environment.events(&quick, case.quick_size);
    let alone = environment.pace(&load, case.quick_per_second, ALONE).await;
    let name = format!("isolation_{}", case.name);
    let mut figures = percentiles(&format!("{name}_alone"), &alone);

    // A connection of its own, so that the troubled tenants do not hold up the quick one's publishing.
    let other = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let mut reference = alone.percentile(0.99);
    if case.size == LARGE {
        // Broker and ledger write ten megabytes a second then, although nobody is slow.
        let well = environment.webhooks(case.tenants, case.webhooks, "/ok/platform").await;
        let well = other.pace(environment.events(&well, case.size), case.per_second, BESIDE);
        let beside = environment.pace(&load, case.quick_per_second, BESIDE).await;
        well.await.expect("publishing does not panic");
        figures.extend(percentiles(&format!("{name}_beside_the_same_well"), &beside));
        reference = beside.percentile(0.99);
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let events = case.per_second / case.webhooks as f64;
    let trouble = other.pace(environment.events(&troubled, case.size), events, NEW + case.lasting);
    let new = environment.pace(&load, case.quick_per_second, NEW).await;
    let beside = environment.pace(&load, case.quick_per_second, case.lasting).await;
    let memory = environment.peak("dispatcher") + environment.socket_memory("dispatcher");
    trouble.await.expect("publishing does not panic");

    figures.extend(percentiles(&format!("{name}_beside"), &beside));
    let most = 2.0 * reference + 20.0;
    figures.push(Figure::new(format!("{name}_p99"), beside.percentile(0.99), "ms").at_most(most.round()));
    figures.push(Figure::new(format!("{name}_latest"), new.and(beside).percentile(1.0), "ms").at_most(LATEST));
    figures.push(Figure::new(format!("{name}_dispatcher"), memory, "MB").at_most(MEMORY));
    if case.comes_back {
        figures.extend(come_back(environment, case, &load, &name, most).await);
    }
    environment.bench.sink.take("platform");
    figures
}

/// Has the receivers answer again. Measures the rate at which held jobs are delivered, and the quick tenant's latency.
async fn come_back(environment: &Environment<'_>, case: &Case, load: &Load, name: &str, most: f64) -> Vec<Figure> {
    let (well, ill) =
        (environment.bench.sink.url("/ok/back"), environment.bench.sink.url(HANGS).replace("localhost", "127.0.0.1"));
    environment.bench.sink.take("back");
    let began = Instant::now();
    environment.sql(&format!("UPDATE webhooks SET url = '{well}' WHERE url = '{ill}'")).await;
    let held = environment.count("SELECT count(*) FROM held_jobs").await;
    let waiting = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
    let all_sent = async {
        let mut arrived = Vec::new();
        while environment.count(waiting).await > 100 && began.elapsed() < 4 * BESIDE {
            arrived.push((began.elapsed(), environment.bench.sink.arrived("back")));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        arrived
    };
    let (latencies, arrived) =
        environment.bench.paced_beside(load.clone(), "ok", case.quick_per_second, all_sent).await;
    environment.bench.sink.take("back");
    let per_second = best_rate(&arrived);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let (held, took) = (held as f64, began.elapsed().as_secs_f64());
    println!("  {name}: {held} were held; {took:.0} s until they had arrived, {per_second:.0}/s at best");
    vec![
        Figure::new(format!("{name}_held"), held, "jobs"),
        Figure::new(format!("{name}_back"), per_second, "deliveries/s").at_least(1_000.0),
        Figure::new(format!("{name}_back_p99"), latencies.percentile(0.99), "ms").at_most(most.round()),
    ]
}

/// The best rate of [`WINDOW`], from what had arrived by a time.
fn best_rate(arrived: &[(Duration, u64)]) -> f64 {
    let rates = arrived.iter().enumerate().filter_map(|(place, (from, before))| {
        let (to, after) = arrived[place..].iter().find(|(to, _)| *to - *from >= WINDOW)?;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        Some((after - before) as f64 / (*to - *from).as_secs_f64())
    });
    rates.fold(0.0, f64::max)
}

impl Environment<'_> {
    /// Returns the kernel's memory for the sockets of a service's processes, in megabytes.
    fn socket_memory(&self, service: &str) -> f64 {
        let listed = Command::new("ss").args(["-tmnpOH"]).output().expect("ss runs");
        let listed = String::from_utf8_lossy(&listed.stdout);
        let pids = self.pids(service);
        let of_service = listed.lines().filter(|line| pids.iter().any(|pid| line.contains(&format!("pid={pid},"))));
        // Not the buffers' limits: these have two letters (rb, tb).
        let held = |field: &str| field.strip_prefix(['r', 'w', 'f', 't'])?.parse::<f64>().ok();
        let bytes = of_service.filter_map(|line| {
            Some(line.split_once("skmem:(")?.1.split_once(')')?.0.split(',').filter_map(held).sum::<f64>())
        });
        bytes.sum::<f64>() / 1e6
    }
}

/// A receiver that accepts connections and never sends a byte.
struct Silent {
    url: String,
    _accepting: AbortOnDropHandle<()>,
}

impl Silent {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("https://localhost:{}/", listener.local_addr().expect("a listener has an address").port());
        let accepting = tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                taken.extend(listener.accept().await.ok());
            }
        });
        Self { url, _accepting: AbortOnDropHandle::new(accepting) }
    }
}
