//! The cost of a delivery beside a full ledger and beside an empty one.

use super::Volume;
use crate::{
    environment::Environment,
    growth::{FEW, MOST, in_turns},
    load::SMALL,
    report::Figure,
};

/// Measures in turns, on the same servers. Both instances run the same services. The other tenant is quiet meanwhile.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    Environment::with(volume.environment.bench, &[], async |empty| {
        let tenants = empty.webhooks(FEW, 1, "/ok/ok").await;
        empty.start_all(1).await;
        empty.start_api().await;
        for (environment, tenants) in [(empty, &tenants), (volume.environment, &volume.seeded.few)] {
            environment.warm_up(&environment.events(tenants, SMALL), 1).await;
        }
        let sides = [(empty, &tenants[..]), (volume.environment, &volume.seeded.few[..])];
        let [empty, full] = in_turns(sides, ["an empty ledger", "the full ledger"]).await;
        vec![
            Figure::new("volume_cpu_empty", empty, "us/delivery"),
            Figure::new("volume_cpu_full", full, "us/delivery"),
            Figure::new("volume_cpu", full / empty, "ratio").at_most(MOST),
        ]
    })
    .await
}
