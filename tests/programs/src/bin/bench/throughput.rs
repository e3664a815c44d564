//! Deliveries a second and the cost of one, from publish to receiver, with ledger and history.

use crate::{bench::Bench, ceiling, environment::Environment, load::SMALL, report::Figure, round::Round};

/// The bodies: their name, their bytes, and how many a round of the bare pipe and of the service has.
// This many take seconds, also on a fast machine. The wait for a round's last deliveries is little beside that.
const SHORT: Body = Body { name: "600b", size: SMALL, bare: 40_000, deliveries: 40_000 };
// This many fill the broker's log (512 MB), which it then sorts out. Each round pays for that about once.
const LARGE: Body = Body { name: "20k", size: 20_480, bare: 25_000, deliveries: 25_000 };

/// How many rounds of the service make a figure. The bare pipe has one before, between and after them, so that both
/// share whatever else this machine does.
const TURNS: usize = 2;
/// Uncounted deliveries before each round of the service, so that its rate is one that lasts. Its connections to
/// receivers end, and its high load too, while the bare pipe has its turn.
const LEAD_IN: u64 = 2_000;

/// The part of the pipe's rate that each load should reach, and most users' load.
const LEAST: f64 = 0.5;
const LEAST_OF_MOST_USERS: f64 = 0.66;
/// The limits of a delivery's cost at most users' load, by process, in microseconds.
const MOST_CPU: [(&str, f64); 2] = [("dispatcher", 45.0), ("postgres", 36.0)];

pub(crate) struct Body {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) bare: u64,
    pub(crate) deliveries: u64,
}

/// Who gets the events. An event goes to all webhooks of its tenant.
struct Crowd {
    name: &'static str,
    tenants: usize,
    fan_out: u64,
    dispatchers: &'static [usize],
}

const CROWDS: [Crowd; 3] = [
    Crowd { name: "fanout1", tenants: 20, fan_out: 1, dispatchers: &[1, 2] },
    Crowd { name: "fanout20", tenants: 5, fan_out: 20, dispatchers: &[1, 2] },
    Crowd { name: "one_webhook", tenants: 1, fan_out: 1, dispatchers: &[1] },
];

/// Rates, their ratio to the bare pipe's, CPU by process, and the largest resident sizes.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    ceiling::flood(bench, SMALL, 2_000).await;
    let mut figures = Vec::new();
    for crowd in CROWDS {
        figures.extend(Environment::with(bench, &[], async |environment| of_crowd(environment, &crowd).await).await);
    }
    figures
}

async fn of_crowd(environment: &Environment<'_>, crowd: &Crowd) -> Vec<Figure> {
    let tenants = environment.webhooks(crowd.tenants, usize::try_from(crowd.fan_out).unwrap_or(1), "/ok/ok").await;
    environment.start_all(1).await;
    let mut figures = Vec::new();
    for &dispatchers in crowd.dispatchers {
        if dispatchers > 1 {
            environment.start("dispatcher").await;
        }
        environment.warm_up(&environment.events(&tenants, SMALL), crowd.fan_out).await;
        for body in [SHORT, LARGE] {
            if crowd.name == "one_webhook" && body.size != SMALL {
                continue;
            }
            let name = format!("{}_{}_{dispatchers}dispatcher", crowd.name, body.name);
            let load = environment.events(&tenants, body.size);
            let bare = async || {
                let round = ceiling::flood(environment.bench, body.size, body.bare).await;
                round.say("bare pipe");
                round
            };
            let (mut ceilings, mut rounds) = (vec![bare().await], Vec::new());
            for _ in 0..TURNS {
                environment.round(&load, LEAD_IN / crowd.fan_out, crowd.fan_out).await;
                let round = environment.round(&load, body.deliveries / crowd.fan_out, crowd.fan_out).await;
                round.say(&name);
                rounds.push(round);
                ceilings.push(bare().await);
            }
            figures.extend(compared(&name, &Round::sum(rounds), &Round::sum(ceilings)));
        }
        for service in ["event-ingest", "dispatcher"] {
            let name = format!("peak_memory_{}_{}_{dispatchers}dispatcher", service.replace('-', "_"), crowd.name);
            figures.push(Figure::new(name, environment.peak(service), "MB"));
        }
    }
    figures
}

fn compared(name: &str, round: &Round, bare: &Round) -> Vec<Figure> {
    let (bare_rate, bare_cpu) = (bare.per_second(), bare.cpu());
    let of_most_users = name == "fanout1_600b_1dispatcher";
    let least = if of_most_users { LEAST_OF_MOST_USERS } else { LEAST };
    let mut figures = vec![
        Figure::new(format!("throughput_{name}"), round.per_second(), "deliveries/s"),
        Figure::new(format!("throughput_bare_beside_{name}"), bare_rate, "deliveries/s"),
        Figure::new(format!("throughput_ratio_{name}"), round.per_second() / bare_rate, "ratio").at_least(least),
        Figure::new(format!("cpu_{name}"), round.cpu(), "us/delivery"),
        Figure::new(format!("cpu_bare_beside_{name}"), bare_cpu, "us/delivery"),
        Figure::new(format!("cpu_ratio_{name}"), round.cpu() / bare_cpu, "ratio").at_most(3.0),
    ];
    for (process, microseconds) in round.cpu_by_process() {
        let figure = Figure::new(format!("cpu_{}_{name}", process.replace('-', "_")), microseconds, "us/delivery");
        figures.push(match MOST_CPU.iter().find(|(of, _)| of_most_users && *of == process) {
            Some((_, most)) => figure.at_most(*most),
            None => figure,
        });
    }
    figures
}
