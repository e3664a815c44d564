//! The progress of work, by samples: counting all rows again and again would be work itself.

use crate::environment::Environment;

/// Some of the deliveries that the work is about, from the first to the last.
pub(super) struct Samples {
    ids: String,
    count: usize,
}

impl Samples {
    /// About a hundred of the deliveries for which a condition holds, with the last one among them.
    pub(super) async fn of(environment: &Environment<'_>, condition: &str) -> Self {
        let rows = environment
            .rows(&format!(
                "SELECT id::text FROM ( \
                   SELECT id, row_number() OVER (ORDER BY id) AS n, count(*) OVER () AS count FROM deliveries \
                   WHERE {condition}) AS numbered \
                 WHERE n % greatest(count / 100, 1) = 0 OR n = count"
            ))
            .await;
        assert!(!rows.is_empty(), "there are none: {condition}");
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        Self { ids: format!("'{{{}}}'::uuid[]", ids.join(",")), count: ids.len() }
    }

    /// The part of the samples that are in a table and fulfil a condition.
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    pub(super) async fn part_in(&self, environment: &Environment<'_>, table: &str, key: &str, condition: &str) -> f64 {
        let ids = &self.ids;
        let count = format!("SELECT count(*) FROM {table} WHERE {key} = ANY ({ids}) AND {condition}");
        environment.count(&count).await as f64 / self.count as f64
    }
}

/// A small part if a condition still holds for rows that are no samples, else 0. It may read many rows, so it is for
/// the end.
pub(super) async fn any(environment: &Environment<'_>, condition: &str) -> f64 {
    if environment.count(&format!("SELECT ({condition})::integer::bigint")).await > 0 { 0.01 } else { 0.0 }
}
