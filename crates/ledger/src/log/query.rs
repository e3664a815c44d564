//! The statement that reads logs step by step, composed of what was asked for.
//!
//! A step reads the next rows of each sequence along its index, whatever is asked for. The limit is inside, and the
//! conditions are outside: with a condition beside it, the planner expects few rows. It may then read the range of ids
//! along the primary key, with the rows of every webhook, and sort what is left. The same goes for a condition on what may
//! be absent (`$5 IS NULL OR …`). A day has millions of rows. The lower bound of ids is a parameter of a generic plan:
//! of a range that it does not know, the planner expects a two-hundredth of the rows, whichever index it takes.

use diesel::{
    deserialize::{self, FromSqlRow},
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::QueryResult,
    row::Row,
    sql_types::{Array, BigInt, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid},
};
use domain::{EventId, EventType};
use uuid::Uuid;

use super::{Delivery, DeliveryFilter};
use crate::lists::known;

/// Rows that one statement reads in some milliseconds: of the log, or of unsuccessful deliveries, each looked up.
const STEP_ROWS: usize = 2_000;
const STEP_LOOKUPS: usize = 500;
/// The least rows that a statement reads of each sequence.
const MIN_ROWS: usize = 8;

/// The deliveries of a webhook, in the order of their ids, and how far they were read.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    pub(super) webhook: Uuid,
    /// All below this id are still to be read.
    pub(super) before: Uuid,
}

/// Selects the newest matches among the rows of a step, and of each sequence the last row of a full step, which may not
/// match.
pub(super) struct LogStep<'a> {
    webhooks: Vec<Uuid>,
    /// The step begins below these ids.
    befores: Vec<Uuid>,
    /// It ends here, if whole logs are read.
    low: Uuid,
    /// The states of the unsuccessful deliveries to read; whole logs if there are none.
    unsuccessful: &'a [&'static str],
    /// The states to match; any if there are none.
    states: &'a [&'static str],
    event_type: Option<&'static str>,
    event: Option<Uuid>,
    is_test: Option<bool>,
    /// Maximum of rows that are looked at in each sequence.
    looked_at: i64,
    /// Maximum of rows that are returned of each.
    most: i64,
}

/// What a search reads and matches: the states of unsuccessful deliveries, or whole logs and the states to match there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum States {
    Unsuccessful(Vec<&'static str>),
    OfLogs(Vec<&'static str>),
}

impl<'a> LogStep<'a> {
    /// Makes the step that looks for `needed` deliveries down to an id.
    pub(super) fn new(
        (sequences, low): (&[Sequence], Uuid),
        states: &'a States,
        filter: &DeliveryFilter,
        needed: usize,
    ) -> Self {
        let (webhooks, befores) = sequences.iter().map(|sequence| (sequence.webhook, sequence.before)).unzip();
        let (unsuccessful, states): (&[_], &[_]) = match states {
            States::Unsuccessful(states) => (states, &[]),
            States::OfLogs(states) => (&[], states),
        };
        let (event_type, event) = (filter.event_type.map(EventType::as_str), filter.event.map(EventId::as_uuid));
        let is_test = filter.is_test;
        let all_match = states.is_empty() && event_type.is_none() && event.is_none() && is_test.is_none();
        let step = match unsuccessful.is_empty() {
            _ if all_match => needed,
            true => STEP_ROWS,
            false => STEP_LOOKUPS,
        };
        let share = (STEP_ROWS / sequences.len().max(1)).max(MIN_ROWS);
        let [looked_at, most] = [step.min(share), needed + 1].map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        Self { webhooks, befores, low, unsuccessful, states, event_type, event, is_test, looked_at, most }
    }

    /// Returns true if this number of rows of a sequence may not be all that it has.
    pub(super) fn is_cut(&self, returned: usize) -> bool {
        i64::try_from(returned).is_ok_and(|returned| returned >= self.most)
    }

    /// The next rows of a sequence (README, a webhook's log). The limit is a parameter: the planner then expects a tenth
    /// of the rows to be read, however few it believes to be there, and reads them in order.
    fn rows<'b>(&'b self, id: &'static str, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(" WHERE webhook_id = ANY (ARRAY[q.webhook_id]) AND ");
        if !self.unsuccessful.is_empty() {
            out.push_sql("state = w.state AND ");
        }
        out.push_sql(id);
        out.push_sql(" < q.before");
        if self.unsuccessful.is_empty() {
            out.push_sql(" AND id >= ");
            out.push_bind_param::<SqlUuid, _>(&self.low)?;
        }
        out.push_sql(" ORDER BY webhook_id DESC, ");
        out.push_sql(id);
        out.push_sql(" DESC LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)
    }

    /// The conditions that were asked for, and no others.
    fn conditions<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if !self.states.is_empty() {
            out.push_sql(" AND d.state = ANY (");
            out.push_bind_param::<Array<Text>, _>(self.states)?;
            out.push_sql(")");
        }
        if let Some(event_type) = &self.event_type {
            out.push_sql(" AND d.event_type = ");
            out.push_bind_param::<Text, _>(*event_type)?;
        }
        if let Some(event) = &self.event {
            out.push_sql(" AND d.event_id = ");
            out.push_bind_param::<SqlUuid, _>(event)?;
        }
        if let Some(is_test) = &self.is_test {
            out.push_sql(" AND d.is_test = ");
            out.push_bind_param::<Bool, _>(is_test)?;
        }
        Ok(())
    }
}

impl QueryFragment<Pg> for LogStep<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT place, s.* FROM unnest(");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.webhooks)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.befores)?;
        out.push_sql(") WITH ORDINALITY AS q(webhook_id, before, place) CROSS JOIN LATERAL (SELECT id, event_id, ");
        out.push_sql("event_type, is_test, state, attempts, created_at, first_failed_at, next_attempt_at, read_id, ");
        out.push_sql("is_match, number = ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)?;
        out.push_sql(" AS is_end FROM (SELECT d.*, row_number() OVER () AS number, ");
        if self.unsuccessful.is_empty() {
            out.push_sql("d.id AS read_id, true");
            self.conditions(&mut out)?;
            out.push_sql(" AS is_match FROM (SELECT * FROM deliveries");
            self.rows("id", &mut out)?;
            out.push_sql(") AS d");
        } else {
            // A delivery may be gone meanwhile.
            out.push_sql("u.delivery_id AS read_id, d.id IS NOT NULL");
            self.conditions(&mut out)?;
            out.push_sql(" AS is_match FROM (SELECT delivery_id FROM unnest(");
            out.push_bind_param::<Array<Text>, _>(self.unsuccessful)?;
            out.push_sql(") AS w(state) CROSS JOIN LATERAL (SELECT delivery_id FROM unsuccessful_deliveries");
            self.rows("delivery_id", &mut out)?;
            out.push_sql(") AS one ORDER BY delivery_id DESC LIMIT ");
            out.push_bind_param::<BigInt, _>(&self.looked_at)?;
            out.push_sql(
                ") AS u LEFT JOIN LATERAL (SELECT * FROM deliveries WHERE id = u.delivery_id LIMIT 1) AS d ON true",
            );
        }
        out.push_sql(") AS numbered WHERE is_match OR number = ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)?;
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.most)?;
        out.push_sql(") AS s");
        Ok(())
    }
}

/// The columns of a delivery.
type Columns =
    (SqlUuid, SqlUuid, Text, Bool, Text, SmallInt, Timestamptz, Nullable<Timestamptz>, Nullable<Timestamptz>);
/// The place of a sequence, a delivery, the id that was read, and whether it matches, or ends a full step.
type StepColumns = (BigInt, Columns, SqlUuid, Bool, Bool);

impl Query for LogStep<'_> {
    type SqlType = StepColumns;
}

/// A row of a step.
pub(super) struct LogRow {
    /// The place of its sequence, from 1.
    pub(super) place: usize,
    pub(super) id: Uuid,
    /// `None` if the row does not match, or if this version does not know one of its values.
    pub(super) delivery: Option<Delivery>,
    /// True for the last row of a full step.
    pub(super) is_end: bool,
}

impl FromSqlRow<StepColumns, Pg> for LogRow {
    fn build_from_row<'a>(row: &impl Row<'a, Pg>) -> deserialize::Result<Self> {
        let flag = |name| row.get_value::<Bool, bool, &str>(name);
        let delivery = || known(<Delivery as FromSqlRow<Columns, Pg>>::build_from_row(&row.partial_row(1..10)));
        let delivery = if flag("is_match")? { delivery() } else { None };
        let place = row.get_value::<BigInt, i64, &str>("place")?.try_into()?;
        Ok(Self { place, id: row.get_value::<SqlUuid, Uuid, &str>("read_id")?, delivery, is_end: flag("is_end")? })
    }
}

/// Each combination has a text of its own, and diesel keeps a prepared statement for each text.
impl QueryId for LogStep<'_> {
    type QueryId = ();

    const HAS_STATIC_QUERY_ID: bool = false;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use diesel::debug_query;

    use super::*;

    fn logs() -> States {
        States::OfLogs(Vec::new())
    }

    fn dropped() -> States {
        States::Unsuccessful(vec!["dropped"])
    }

    fn step<'a>(count: usize, states: &'a States, filter: &DeliveryFilter) -> LogStep<'a> {
        LogStep::new(
            (&vec![Sequence { webhook: Uuid::nil(), before: Uuid::max() }; count], Uuid::nil()),
            states,
            filter,
            51,
        )
    }

    /// The text of a step with these members of a filter, by the bits of a number.
    fn text(states: &States, bits: u8) -> String {
        let has = |bit: u8| bits & (1 << bit) != 0;
        let filter = DeliveryFilter {
            event_type: has(0).then_some(EventType::QuoteClosed),
            event: has(1).then_some(Uuid::nil().into()),
            is_test: has(2).then_some(true),
            ..DeliveryFilter::default()
        };
        let step = step(1, states, &filter);
        let shown = debug_query::<Pg, _>(&step).to_string();
        assert!(step.is_safe_to_cache_prepared(&Pg).unwrap(), "{shown}");
        shown.split(" -- binds").next().unwrap().to_owned()
    }

    #[test]
    fn a_step_has_its_limit_inside_and_what_was_asked_for_outside() {
        let (plain, all) = (text(&logs(), 0), text(&States::OfLogs(vec!["pending"]), 0b111));
        assert!(plain.contains("d.id AS read_id, true AS is_match"), "{plain}");
        let asked =
            "true AND d.state = ANY ($4) AND d.event_type = $5 AND d.event_id = $6 AND d.is_test = $7 AS is_match";
        assert!(all.contains(asked), "{all}");
        let inside = "FROM deliveries WHERE webhook_id = ANY (ARRAY[q.webhook_id]) AND id < q.before AND id >= $8 \
                      ORDER BY webhook_id DESC, id DESC LIMIT $9) AS d) AS numbered";
        assert!(all.contains(inside), "{all}");
        let unsuccessful = text(&dropped(), 0b1);
        let inside = "unsuccessful_deliveries WHERE webhook_id = ANY (ARRAY[q.webhook_id]) AND state = w.state \
                      AND delivery_id < q.before ORDER BY webhook_id DESC, delivery_id DESC LIMIT $6) AS one";
        assert!(unsuccessful.contains(inside), "{unsuccessful}");
    }

    #[test]
    fn each_combination_has_a_prepared_statement_of_its_own() {
        let of_logs = [logs(), States::OfLogs(vec!["pending"])];
        let texts: BTreeSet<_> = (0..16).map(|bits| text(&of_logs[usize::from(bits >> 3)], bits)).collect();
        assert_eq!(texts.len(), 16);
        assert!(texts.iter().all(|text| !text.contains("IS NULL")), "no condition on what is absent");
        let others = States::Unsuccessful(vec!["retrying", "skipped"]);
        assert_eq!(text(&others, 0), text(&dropped(), 0), "states share a statement");
        // The end-to-end test of plans reads them there.
        let longest = text(&dropped(), 0b111).len();
        assert!(longest < 1024, "pg_stat_activity cuts {longest} bytes");
    }

    #[test]
    fn many_sequences_share_the_rows_of_a_step() {
        let (logs, dropped) = (logs(), dropped());
        let (all, tests) =
            (DeliveryFilter::default(), DeliveryFilter { is_test: Some(true), ..DeliveryFilter::default() });
        for (count, plain, filtered, unsuccessful) in
            [(1, 51, 2_000, 500), (10, 51, 200, 200), (100, 20, 20, 20), (1_100, 8, 8, 8)]
        {
            let looked_at = |states, filter| step(count, states, filter).looked_at;
            let found = [looked_at(&logs, &all), looked_at(&logs, &tests), looked_at(&dropped, &tests)];
            assert_eq!(found, [plain, filtered, unsuccessful], "{count}");
            assert_eq!(looked_at(&dropped, &all), plain, "{count}");
        }
    }
}
