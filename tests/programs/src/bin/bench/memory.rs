//! The largest resident size of each service while receivers hold its attempts. The part `throughput` measures the size
//! at full speed, and `backlog` with a backlog.

use std::{process::Command, time::Duration};

use crate::{bench::Bench, environment::Environment, load::SMALL_BODY_BYTES, report::Figure, round::ROUND_TIMEOUT};

/// About the largest that an event's `data` may be, with room for what surrounds it.
const MAX_DATA_BYTES: usize = 256 * 1024 - 200;

/// What the receivers do, and the number and size of the events: more than the slots, or than the memory for long bodies.
const CASES: [(&str, &str, u64, usize); 3] = [
    ("hanging_receivers", "/hang/held", 2_048, SMALL_BODY_BYTES),
    ("long_bodies_hang", "/hang/held", 600, MAX_DATA_BYTES),
    ("answered_and_unread", "/unread/held", 600, MAX_DATA_BYTES),
];

const TENANTS: usize = 200;
/// So many attempts have begun when the waiting begins.
const BEGUN_ATTEMPTS: u64 = 16;
/// Long enough for the first attempts to time out and for others to take their slots.
const HOLD_DURATION: Duration = Duration::from_secs(15);
/// The limit of ingest, and that of a dispatcher with the kernel's memory for its sockets, in megabytes.
const MAX_MEGABYTES: (f64, f64) = (100.0, 150.0);

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (case, path, events, size) in CASES {
        let held = async |environment: &Environment<'_>| {
            let tenants = environment.webhooks(TENANTS, 1, path).await;
            environment.start_all(1).await;
            let before = bench.sink.requests();
            bench.publisher.flood(&environment.events(&tenants, size), events).await;
            bench.sink.wait_for(before + BEGUN_ATTEMPTS, ROUND_TIMEOUT).await;
            tokio::time::sleep(HOLD_DURATION).await;
            let dispatcher = environment.peak("dispatcher") + environment.socket_memory("dispatcher");
            bench.sink.take("held");
            [
                Figure::new(format!("memory_ingest_{case}"), environment.peak("event-ingest"), "MB")
                    .at_most(MAX_MEGABYTES.0),
                Figure::new(format!("memory_dispatcher_{case}"), dispatcher, "MB").at_most(MAX_MEGABYTES.1),
            ]
        };
        figures.extend(Environment::with(bench, &[], held).await);
    }
    figures
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
