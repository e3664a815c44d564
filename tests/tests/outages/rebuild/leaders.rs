//! One leader at a time.

use end_to_end::{
    processes::Process,
    system::{TestSystem, metric},
    wait::{SOON, eventually},
};

use crate::rebuild::options;

async fn leads(process: &Process) -> bool {
    metric(process.ops, "webhooks_maintenance_leader").await > 0.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_ingests_one_leads_and_when_it_is_killed_another_does() {
    let system = TestSystem::prepared(options()).await;
    let mut ingests = Vec::new();
    for _ in 0..3 {
        ingests.push(Process::start("event-ingest", &system.variables).await);
    }
    while !ingests.is_empty() {
        let leader = eventually("somebody leads", SOON, || async {
            let mut leaders = Vec::new();
            for (index, ingest) in ingests.iter().enumerate() {
                if leads(ingest).await {
                    leaders.push(index);
                }
            }
            assert!(leaders.len() <= 1, "{leaders:?} lead");
            leaders.pop()
        })
        .await;
        let passes = metric(ingests[leader].ops, "webhooks_reconcile_passes_total").await;
        eventually("it works", SOON, || async {
            (metric(ingests[leader].ops, "webhooks_reconcile_passes_total").await > passes).then_some(())
        })
        .await;
        for (index, ingest) in ingests.iter().enumerate() {
            let idle = metric(ingest.ops, "webhooks_reconcile_passes_total").await == 0.0;
            assert!(index == leader || idle, "the others only wait");
        }
        ingests.remove(leader).kill();
    }
}
