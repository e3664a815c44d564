//! Deliveries that failed and wait, were dropped or were cancelled. Triggers in `migrations/` maintain their table.

use diesel::{
    QueryableByName,
    sql_types::{Nullable, Text, Uuid as SqlUuid},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use crate::error::LedgerError;

/// The table is complete when it has a comment.
const COMMENT: &str = "SELECT obj_description('unsuccessful_deliveries'::regclass) AS comment";

// The lock waits for a change to a delivery that is under way, so that the row shows the newest state.
const FILL: &str = "WITH chunk AS MATERIALIZED (SELECT id FROM deliveries WHERE id > $1 ORDER BY id LIMIT 10000), filled AS ( \
       INSERT INTO unsuccessful_deliveries (delivery_id, webhook_id, state, next_attempt_at) \
       SELECT id, webhook_id, state, next_attempt_at FROM deliveries \
       WHERE id > $1 AND id <= (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AND state NOT IN ('pending', 'succeeded') \
       ORDER BY id FOR SHARE ON CONFLICT DO NOTHING \
     ) SELECT (SELECT id FROM chunk ORDER BY id DESC LIMIT 1) AS last";

#[derive(QueryableByName)]
struct Comment {
    #[diesel(sql_type = Nullable<Text>)]
    comment: Option<String>,
}

#[derive(QueryableByName)]
struct Last {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    last: Option<Uuid>,
}

/// Adds the deliveries that are older than the table, chunk by chunk. Nobody waits for it for long.
pub(crate) async fn fill(conn: &mut AsyncPgConnection) -> Result<(), LedgerError> {
    let Comment { comment } = diesel::sql_query(COMMENT).get_result(conn).await?;
    if comment.is_some() {
        return Ok(());
    }
    let mut cursor = Uuid::nil();
    while let Last { last: Some(last) } = diesel::sql_query(FILL).bind::<SqlUuid, _>(cursor).get_result(conn).await? {
        cursor = last;
    }
    Ok(())
}
