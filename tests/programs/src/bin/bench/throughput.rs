//! Deliveries a second at full speed and the cost of one, from publish to receiver, with ledger and history.

use crate::{bench::Bench, ceiling, environment::Environment, load::SMALL_BODY_BYTES, report::Figure, round::Round};

const TENANTS: usize = 20;
// This many take seconds, also on a fast machine. The wait for a round's last deliveries is little beside that.
const DELIVERIES: u64 = 40_000;
/// The number of measured rounds of the service. The bare pipe has one before, between and after them, so that both
/// share whatever else this machine does.
const TURNS: usize = 2;
/// Uncounted deliveries before each round of the service, so that its rate is one that lasts. Its connections to
/// receivers end, and its high load too, while the bare pipe has its turn.
const LEAD_IN: u64 = 2_000;
/// The maximum CPU of a delivery, all processes together, in microseconds.
const MOST_CPU: f64 = 170.0;
/// The maximum resident size of a service, in megabytes.
const MOST_MEMORY: f64 = 100.0;

/// Rates, CPU by process, those of the bare pipe beside them, and the largest resident sizes.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    ceiling::flood(bench, 2_000).await;
    Environment::with(bench, &[], async |environment| {
        let tenants = environment.webhooks(TENANTS, 1, "/ok/ok").await;
        environment.start_all(1).await;
        let load = environment.events(&tenants, SMALL_BODY_BYTES);
        environment.warm_up(&load, 1).await;
        let (mut ceilings, mut rounds) = (vec![ceiling::flood(bench, DELIVERIES).await], Vec::new());
        for _ in 0..TURNS {
            environment.round(&load, LEAD_IN, 1).await;
            rounds.push(environment.round(&load, DELIVERIES, 1).await);
            ceilings.push(ceiling::flood(bench, DELIVERIES).await);
        }
        let mut figures = figures(&Round::sum(rounds), &Round::sum(ceilings));
        for service in ["event-ingest", "dispatcher"] {
            let name = format!("peak_memory_{}", service.replace('-', "_"));
            figures.push(Figure::new(name, environment.peak(service), "MB").at_most(MOST_MEMORY));
        }
        figures
    })
    .await
}

fn figures(round: &Round, bare: &Round) -> Vec<Figure> {
    let mut figures = vec![
        Figure::new("throughput", round.per_second(), "deliveries/s"),
        Figure::new("throughput_bare", bare.per_second(), "deliveries/s"),
        Figure::new("cpu", round.cpu(), "us/delivery").at_most(MOST_CPU),
        Figure::new("cpu_bare", bare.cpu(), "us/delivery"),
    ];
    let of_process =
        |(process, microseconds): (&str, f64)| (format!("cpu_{}", process.replace('-', "_")), microseconds);
    let by_process = round.cpu_by_process().into_iter().map(of_process);
    figures.extend(by_process.map(|(name, microseconds)| Figure::new(name, microseconds, "us/delivery")));
    figures
}
