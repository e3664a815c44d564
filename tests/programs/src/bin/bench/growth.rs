//! Measures that the cost of a delivery does not grow with the history, the number of webhooks or a backlog.

mod backlog;
mod history;

pub(crate) use backlog::measure as with_backlog;

use uuid::Uuid;

use crate::{bench::Bench, environment::Environment, load::SMALL_BODY_BYTES, report::Figure, round::Round};

const HISTORY_ROWS: u32 = 1_000_000;
const FEW_TENANTS: usize = 10;
const MANY_TENANTS: usize = 10_000;
// This many take seconds, also on a fast machine.
const DELIVERIES: u64 = 24_000;
const TURNS: usize = 2;
const MAX_COST_RATIO: f64 = 1.2;

/// CPU per delivery with 0 and with 1,000,000 rows of history.
pub(crate) async fn with_history(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |young| {
        Environment::with(bench, &[], async |old| {
            let of_young = ready(young, FEW_TENANTS).await;
            let of_old = ready(old, FEW_TENANTS).await;
            history::fill(old, HISTORY_ROWS).await;
            bench.settle().await;
            let sides = [(young, &of_young[..]), (old, &of_old[..])];
            let [none, million] = in_turns(sides).await;
            figures("history", [("0_rows", none), ("1000000_rows", million)])
        })
        .await
    })
    .await
}

/// CPU per delivery with 10 and with 10,000 webhooks. Events go to all of the 10,000, and to ten of them.
pub(crate) async fn with_webhooks(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |small| {
        Environment::with(bench, &[], async |large| {
            let few = ready(small, FEW_TENANTS).await;
            let many = ready(large, MANY_TENANTS).await;
            let sides = [(small, &few[..]), (large, &many[..]), (large, &many[..FEW_TENANTS])];
            let [few, all, ten] = in_turns(sides).await;
            let mut figures = figures("webhooks", [("10", few), ("10000", all)]);
            figures.push(Figure::new("growth_webhooks_10_used_of_10000_cpu", ten, "us/delivery"));
            figures.push(Figure::new("growth_webhooks_10_used_of_10000", ten / few, "ratio").at_most(MAX_COST_RATIO));
            figures
        })
        .await
    })
    .await
}

async fn ready(environment: &Environment<'_>, webhooks: usize) -> Vec<Uuid> {
    let tenants = environment.webhooks(webhooks, 1, "/ok/ok").await;
    environment.start_all(1).await;
    environment.warm_up(&environment.events(&tenants, SMALL_BODY_BYTES), 1).await;
    tenants
}

/// CPU per delivery on each side. The sides take turns, so that they share whatever else this machine does.
async fn in_turns<const N: usize>(sides: [(&Environment<'_>, &[Uuid]); N]) -> [f64; N] {
    let mut rounds = [const { Vec::<Round>::new() }; N];
    for _ in 0..TURNS {
        for ((environment, tenants), rounds) in sides.iter().zip(&mut rounds) {
            rounds.push(environment.round(&environment.events(tenants, SMALL_BODY_BYTES), DELIVERIES, 1).await);
        }
    }
    rounds.map(|rounds| Round::sum(rounds).cpu())
}

fn figures(what: &str, [(small, before), (large, after)]: [(&str, f64); 2]) -> Vec<Figure> {
    vec![
        Figure::new(format!("growth_{what}_{small}_cpu"), before, "us/delivery"),
        Figure::new(format!("growth_{what}_{large}_cpu"), after, "us/delivery"),
        Figure::new(format!("growth_{what}"), after / before, "ratio").at_most(MAX_COST_RATIO),
    ]
}
