//! Deletes a webhook with 2,000,000 waiting deliveries: all of them are cancelled.

use std::time::Instant;

use super::{
    Volume,
    operation::{Operation, Others, Worked},
    samples::{Samples, any},
    size::WAITING,
};
use crate::{kept::Kept, report::Figure};

const IS_WAITING: &str = "state IN ('pending', 'retrying')";

/// The work ends when none of its deliveries waits and none of its jobs is held.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let (environment, webhook) = (volume.environment, volume.seeded.waiting);
    let operation = Operation { name: "deletion", rows: volume.size.of(WAITING), others: Others::Times(2.0) };
    let samples = Samples::of(environment, &format!("webhook_id = '{webhook}' AND {IS_WAITING}")).await;
    let left = format!(
        "EXISTS (SELECT FROM deliveries WHERE webhook_id = '{webhook}' AND {IS_WAITING}) \
         OR EXISTS (SELECT FROM held_jobs WHERE webhook_id = '{webhook}')"
    );
    let done = async || {
        let waiting = samples.part_in(environment, "deliveries", "id", IS_WAITING).await;
        let held = samples.part_in(environment, "held_jobs", "delivery_id", &format!("webhook_id = '{webhook}'")).await;
        let left = if waiting + held > 0.0 { waiting.max(held) } else { any(environment, &left).await };
        1.0 - left
    };
    volume
        .measured(&operation, async || {
            let mut api = Kept::open(&volume.admin).await;
            let began = Instant::now();
            let answer = api.ask("DELETE", &volume.path(webhook), None).await;
            if answer.status != 204 {
                println!("  the deletion was answered by {}", answer.status);
                return Worked::refused(began);
            }
            let call = Some(answer.took.as_secs_f64() * 1000.0);
            Worked { call, ..operation.watched(began, done).await }
        })
        .await
}
