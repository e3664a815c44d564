//! The statement that reads a webhook's log step by step, composed of what was asked for.
//!
//! A step reads the next rows along the index of webhooks, whatever is asked for. The limit is inside, and the conditions
//! are outside: with a range of ids or a condition beside it, the planner expects few rows. It may then read the range
//! along the primary key, with the rows of every webhook, and sort what is left. The same goes for a condition on what may
//! be absent (`$5 IS NULL OR …`). A day has millions of rows.

use diesel::{
    deserialize::{self, FromSqlRow},
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::QueryResult,
    row::Row,
    sql_types::{Array, BigInt, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid},
};
use domain::{DeliveryState, EventType};
use uuid::Uuid;

use super::{Delivery, DeliveryFilter};
use crate::lists::known;

/// Rows that one statement reads in some milliseconds: of the log, or of unsuccessful deliveries, each looked up.
const STEP_ROWS: i64 = 2_000;
const STEP_LOOKUPS: i64 = 500;

/// Columns of a delivery.
const LOG_COLUMNS: &str =
    "SELECT id, event_id, event_type, is_test, state, attempts, created_at, first_failed_at, next_attempt_at, ";
/// Columns of an unsuccessful delivery that may be gone. A row that does not match is not read.
const LOOKED_UP_COLUMNS: &str = "SELECT u.delivery_id AS id, coalesce(d.event_id, u.delivery_id) AS event_id, \
     coalesce(d.event_type, '') AS event_type, coalesce(d.is_test, false) AS is_test, coalesce(d.state, '') AS state, \
     coalesce(d.attempts, 0::smallint) AS attempts, coalesce(d.created_at, 'epoch'::timestamptz) AS created_at, \
     d.first_failed_at, d.next_attempt_at, ";

/// The deliveries that a search reads.
#[derive(Clone, Copy)]
pub(super) enum LogSource {
    /// All of the webhook's.
    Log,
    /// The unsuccessful ones in this state.
    Unsuccessful(DeliveryState),
}

/// Selects the newest matches among the rows of a step, and the last row of a full step, which may not match.
pub(super) struct LogStep<'a> {
    webhook: Uuid,
    /// The step begins below this id.
    before: Uuid,
    /// The state of the unsuccessful deliveries, unless all are looked at.
    unsuccessful: Option<&'static str>,
    states: Option<&'static [&'static str]>,
    event_type: Option<&'static str>,
    filter: &'a DeliveryFilter,
    /// Maximum of rows that are looked at.
    looked_at: i64,
    /// Maximum of rows that are returned.
    most: i64,
}

impl<'a> LogStep<'a> {
    /// Makes the step that looks for `needed` deliveries below an id.
    pub(super) fn new(
        (webhook, source): (Uuid, LogSource),
        before: Uuid,
        states: Option<&'static [&'static str]>,
        filter: &'a DeliveryFilter,
        needed: usize,
    ) -> Self {
        let needed = i64::try_from(needed).unwrap_or(i64::MAX);
        let all_match = states.is_none() && filter.takes_all();
        let (unsuccessful, looked_at) = match source {
            LogSource::Log if all_match => (None, needed),
            LogSource::Log => (None, STEP_ROWS),
            LogSource::Unsuccessful(state) => (Some(state.into()), STEP_LOOKUPS),
        };
        let (event_type, most) = (filter.event_type.map(EventType::as_str), needed.saturating_add(1));
        Self { webhook, before, unsuccessful, states, event_type, filter, looked_at, most }
    }

    /// The next rows of the webhook (README, a webhook's log). The limit is a parameter: the planner then expects a tenth
    /// of the rows to be read, however few it believes to be there, and reads them in order.
    fn rows<'b>(&'b self, id: &'static str, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(" WHERE webhook_id = ANY (ARRAY[");
        out.push_bind_param::<SqlUuid, _>(&self.webhook)?;
        out.push_sql("]) AND ");
        if let Some(state) = &self.unsuccessful {
            out.push_sql("state = ");
            out.push_bind_param::<Text, _>(*state)?;
            out.push_sql(" AND ");
        }
        out.push_sql(id);
        out.push_sql(" < ");
        out.push_bind_param::<SqlUuid, _>(&self.before)?;
        out.push_sql(" ORDER BY webhook_id DESC, ");
        out.push_sql(id);
        out.push_sql(" DESC LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)
    }

    /// The conditions that were asked for, and no others.
    fn conditions<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if let Some(states) = &self.states {
            out.push_sql(" AND d.state = ANY (");
            out.push_bind_param::<Array<Text>, _>(*states)?;
            out.push_sql(")");
        }
        if let Some(event_type) = &self.event_type {
            out.push_sql(" AND d.event_type = ");
            out.push_bind_param::<Text, _>(*event_type)?;
        }
        if let Some(created_from) = &self.filter.created_from {
            out.push_sql(" AND d.created_at >= ");
            out.push_bind_param::<Timestamptz, _>(created_from)?;
        }
        if let Some(created_until) = &self.filter.created_until {
            out.push_sql(" AND d.created_at < ");
            out.push_bind_param::<Timestamptz, _>(created_until)?;
        }
        Ok(())
    }
}

impl QueryFragment<Pg> for LogStep<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        const NUMBERED_ROWS: &str = " AS is_match, row_number() OVER () AS number FROM (SELECT ";
        out.push_sql("SELECT id, event_id, event_type, is_test, state, attempts, created_at, first_failed_at, ");
        out.push_sql("next_attempt_at, is_match, number = ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)?;
        out.push_sql(" AS is_end FROM (");
        if self.unsuccessful.is_none() {
            out.push_sql(LOG_COLUMNS);
            out.push_sql("true");
            self.conditions(&mut out)?;
            out.push_sql(NUMBERED_ROWS);
            out.push_sql("* FROM deliveries");
            self.rows("id", &mut out)?;
            out.push_sql(") AS d");
        } else {
            out.push_sql(LOOKED_UP_COLUMNS);
            out.push_sql("d.id IS NOT NULL");
            self.conditions(&mut out)?;
            out.push_sql(NUMBERED_ROWS);
            out.push_sql("delivery_id FROM unsuccessful_deliveries");
            self.rows("delivery_id", &mut out)?;
            out.push_sql(
                ") AS u LEFT JOIN LATERAL (SELECT * FROM deliveries WHERE id = u.delivery_id LIMIT 1) AS d ON true",
            );
        }
        out.push_sql(") AS numbered WHERE is_match OR number = ");
        out.push_bind_param::<BigInt, _>(&self.looked_at)?;
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.most)
    }
}

type Columns =
    (SqlUuid, SqlUuid, Text, Bool, Text, SmallInt, Timestamptz, Nullable<Timestamptz>, Nullable<Timestamptz>);

impl Query for LogStep<'_> {
    type SqlType = (Columns, Bool, Bool);
}

/// A row of a step.
pub(super) struct LogRow {
    pub(super) id: Uuid,
    /// `None` if the row does not match, or if this version does not know one of its values.
    pub(super) delivery: Option<Delivery>,
    /// True for the last row of a full step.
    pub(super) is_end: bool,
}

impl FromSqlRow<(Columns, Bool, Bool), Pg> for LogRow {
    fn build_from_row<'a>(row: &impl Row<'a, Pg>) -> deserialize::Result<Self> {
        let flag = |name| row.get_value::<Bool, bool, &str>(name);
        let delivery = || known(<Delivery as FromSqlRow<Columns, Pg>>::build_from_row(&row.partial_row(0..9)));
        let delivery = if flag("is_match")? { delivery() } else { None };
        Ok(Self { id: row.get_value::<SqlUuid, Uuid, &str>("id")?, delivery, is_end: flag("is_end")? })
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
    use time::OffsetDateTime;

    use super::*;

    /// The text of a step with these members of a filter, by the bits of a number.
    fn text(source: LogSource, bits: u8) -> String {
        let has = |bit: u8| bits & (1 << bit) != 0;
        let moment = OffsetDateTime::UNIX_EPOCH;
        let filter = DeliveryFilter {
            state: None,
            event_type: has(0).then_some(EventType::QuoteClosed),
            created_from: has(1).then_some(moment),
            created_until: has(2).then_some(moment),
        };
        let states: Option<&[&str]> = has(3).then_some(&["pending"]);
        let step = LogStep::new((Uuid::nil(), source), Uuid::max(), states, &filter, 51);
        let shown = debug_query::<Pg, _>(&step).to_string();
        assert!(step.is_safe_to_cache_prepared(&Pg).unwrap(), "{shown}");
        shown.split(" -- binds").next().unwrap().to_owned()
    }

    #[test]
    fn a_step_has_its_limit_inside_and_what_was_asked_for_outside() {
        let (plain, all) = (text(LogSource::Log, 0), text(LogSource::Log, 0b1111));
        assert!(plain.contains("next_attempt_at, true AS is_match"), "{plain}");
        let asked = "true AND d.state = ANY ($2) AND d.event_type = $3 AND d.created_at >= $4 AND d.created_at < $5 AS is_match";
        assert!(all.contains(asked), "{all}");
        let inside = "FROM deliveries WHERE webhook_id = ANY (ARRAY[$6]) AND id < $7 \
                      ORDER BY webhook_id DESC, id DESC LIMIT $8) AS d) AS numbered";
        assert!(all.contains(inside), "{all}");
        let unsuccessful = text(LogSource::Unsuccessful(DeliveryState::Dropped), 0b1);
        let inside = "unsuccessful_deliveries WHERE webhook_id = ANY (ARRAY[$3]) AND state = $4 AND delivery_id < $5 \
                      ORDER BY webhook_id DESC, delivery_id DESC LIMIT $6) AS u";
        assert!(unsuccessful.contains(inside), "{unsuccessful}");
    }

    #[test]
    fn each_combination_has_a_prepared_statement_of_its_own() {
        let texts: BTreeSet<_> = (0..16).map(|bits| text(LogSource::Log, bits)).collect();
        assert_eq!(texts.len(), 16);
        assert!(texts.iter().all(|text| !text.contains("IS NULL")), "no condition on what is absent");
        let texts =
            [DeliveryState::Dropped, DeliveryState::Retrying].map(|state| text(LogSource::Unsuccessful(state), 0));
        assert_eq!(texts[0], texts[1], "states share a statement");
        // The end-to-end test of plans reads them there.
        let longest = text(LogSource::Unsuccessful(DeliveryState::Dropped), 0b0111).len();
        assert!(longest < 1024, "pg_stat_activity cuts {longest} bytes");
    }
}
