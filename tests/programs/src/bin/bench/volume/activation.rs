//! Activates a paused webhook with 1,000,000 held jobs: all of them are published and delivered.

use std::time::Instant;

use serde_json::json;

use super::{
    Volume,
    operation::{Operation, Others, Worked},
    samples::{Samples, any},
    size::HELD,
};
use crate::{kept::Kept, report::Figure};

/// The work ends when the webhook has no held job and the outbox is empty. The other tenant is watched until all are
/// delivered.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let (environment, webhook) = (volume.environment, volume.seeded.paused);
    let operation = Operation { name: "activation", rows: volume.size.of(HELD), others: Others::Millis(200.0) };
    let samples = Samples::of(environment, &format!("webhook_id = '{webhook}'")).await;
    let left =
        format!("EXISTS (SELECT FROM held_jobs WHERE webhook_id = '{webhook}') OR EXISTS (SELECT FROM promised_jobs)");
    let done = async || {
        let held = samples.part_in(environment, "held_jobs", "delivery_id", &format!("webhook_id = '{webhook}'")).await;
        let promised = samples.part_in(environment, "promised_jobs", "delivery_id", "true").await;
        let left = if held + promised > 0.0 { held + promised } else { any(environment, &left).await };
        1.0 - left
    };
    volume
        .measured(&operation, async || {
            let mut api = Kept::open(&volume.admin).await;
            let began = Instant::now();
            let answer = api.ask("PATCH", &volume.path(webhook), Some(&json!({"is_active": true}))).await;
            if answer.status != 200 {
                println!("  the activation was answered by {}", answer.status);
                return Worked::refused(began);
            }
            let call = Some(answer.took.as_secs_f64() * 1000.0);
            let worked = operation.watched(began, done).await;
            volume.drained().await;
            Worked { call, ..worked }
        })
        .await
}
