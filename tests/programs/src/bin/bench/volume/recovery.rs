//! Recovers 100,000 dropped deliveries of a webhook that has 1,000,000 more: they are sent again.

use std::time::Instant;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    Volume,
    operation::{Operation, Others, Worked},
    size::DROPPED,
};
use crate::{kept::Kept, report::Figure};

/// The work ends when the API says so. The other tenant is watched until all are delivered.
#[expect(clippy::cast_precision_loss, reason = "some millions")]
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let path = format!("{}recover/", volume.path(volume.seeded.retrying));
    let operation = Operation { name: "recovery", rows: volume.size.of(DROPPED), others: Others::Millis(200.0) };
    let since = (OffsetDateTime::now_utc() - Duration::days(30)).format(&Rfc3339).expect("it can be written");
    let (mut resent, rows) = (0.0, operation.rows as f64);
    let mut figures = volume
        .measured(&operation, async || {
            let mut api = Kept::open(&volume.admin).await;
            let began = Instant::now();
            let answer = api.ask("POST", &path, Some(&json!({"from": since}))).await;
            let recovery: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let (202, Some(id)) = (answer.status, recovery["id"].as_str()) else {
                println!("  the recovery was answered by {}", answer.status);
                return Worked::refused(began);
            };
            let call = Some(answer.took.as_secs_f64() * 1000.0);
            let one = format!("{path}{id}/");
            let done = async || {
                let recovery = volume.admin.get(&one).await.json();
                let part = recovery["resent"].as_f64().unwrap_or_default() / rows;
                if recovery["state"] == "done" { 1.0 } else { part.min(0.999) }
            };
            let worked = operation.watched(began, done).await;
            resent = volume.admin.get(&one).await.json()["resent"].as_f64().unwrap_or_default();
            volume.drained().await;
            Worked { call, ..worked }
        })
        .await;
    figures.push(Figure::new("volume_recovery_resent", resent, "deliveries").at_least(rows));
    figures
}
