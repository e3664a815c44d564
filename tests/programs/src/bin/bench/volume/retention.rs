//! Two days of 1,000,000 deliveries become too old. A hundred of the first wait: they are cancelled. Either day is dropped as
//! a whole.

use std::time::Instant;

use time::{Date, Duration, macros::format_description};

use super::{
    Volume,
    operation::{Operation, Others},
    seed::{GOING_DAY, WAITING_DAY},
    size::OLD_DAY,
};
use crate::report::Figure;

const INGEST: &str = "event-ingest";

/// Shortens the retention, as an operator would: an ingest with other settings replaces the one that runs. It looks at
/// all days when it begins to lead. The time until then counts. A day goes a day and a half later than `retention.keep`.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let mut figures = dropped(volume, WAITING_DAY, "retention_cancellation", "33days").await;
    figures.extend(dropped(volume, GOING_DAY, "retention_drop", "30days").await);
    figures
}

async fn dropped(volume: &Volume<'_>, ago: i64, name: &'static str, keep: &str) -> Vec<Figure> {
    let environment = volume.environment;
    let suffix = day(volume, ago).format(format_description!("[year][month][day]")).expect("a date can be written");
    let there = format!("SELECT count(*) FROM pg_class WHERE relname IN ('deliveries_{suffix}', 'events_{suffix}')");
    assert_eq!(environment.count(&there).await, 2, "the day is there");
    let done = async || if environment.count(&there).await == 0 { 1.0 } else { 0.0 };
    shortened(volume, name, keep, done).await
}

async fn shortened(volume: &Volume<'_>, name: &'static str, keep: &str, done: impl AsyncFn() -> f64) -> Vec<Figure> {
    let operation = Operation { name, rows: volume.size.of(OLD_DAY), others: Others::Times(2.0) };
    volume.environment.start_with(INGEST, &[("RETENTION__KEEP", keep)]).await;
    volume
        .measured(&operation, async || {
            let began = Instant::now();
            volume.environment.stop_oldest(INGEST).await;
            operation.watched(began, done).await
        })
        .await
}

fn day(volume: &Volume<'_>, ago: i64) -> Date {
    volume.seeded.today - Duration::days(ago)
}
