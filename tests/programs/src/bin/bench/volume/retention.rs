//! Two days of 1,000,000 deliveries become too old. A hundred of the first wait, so they are copied and replace the day.
//! None of the second waits, so it is dropped as a whole.

use std::time::Instant;

use time::{Date, Duration, macros::format_description};

use super::{
    Volume,
    operation::{Operation, Others},
    samples::Samples,
    seed::{GOING_DAY, MILLIS_A_DAY, STAYING_DAY},
    size::OLD_DAY,
};
use crate::report::Figure;

const INGEST: &str = "event-ingest";

/// Shortens the retention, as an operator would: an ingest with other settings replaces the one that runs. It looks at
/// all days when it begins to lead. The time until then counts.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let mut figures = replaced(volume).await;
    figures.extend(dropped(volume).await);
    figures
}

async fn replaced(volume: &Volume<'_>) -> Vec<Figure> {
    let environment = volume.environment;
    let (from, to) = bounds(day(volume, STAYING_DAY));
    let finished = format!("id >= '{}' AND id < '{}' AND state = 'succeeded'", id(from), id(to));
    let samples = Samples::of(environment, &finished).await;
    // The waiting deliveries, their attempts and events stay. All the others go in one transaction.
    let done = async || 1.0 - samples.part_in(environment, "deliveries", "id", "true").await;
    shortened(volume, "retention_replacement", "34days", done).await
}

async fn dropped(volume: &Volume<'_>) -> Vec<Figure> {
    let environment = volume.environment;
    let suffix =
        day(volume, GOING_DAY).format(format_description!("[year][month][day]")).expect("a date can be written");
    let there = format!("SELECT count(*) FROM pg_class WHERE relname IN ('deliveries_{suffix}', 'events_{suffix}')");
    assert_eq!(environment.count(&there).await, 2, "the day is there");
    let done = async || if environment.count(&there).await == 0 { 1.0 } else { 0.0 };
    shortened(volume, "retention_drop", "30days", done).await
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

/// The begin and the end of a day, in Unix milliseconds.
fn bounds(day: Date) -> (i64, i64) {
    let from = day.midnight().assume_utc().unix_timestamp() * 1000;
    (from, from + MILLIS_A_DAY)
}

fn id(millis: i64) -> uuid::Uuid {
    domain::DeliveryId::bound_at_millis(u64::try_from(millis).expect("it is after 1970"))
}
