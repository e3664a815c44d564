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

const FILL: &str = include_str!("fill_unsuccessful.sql");

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
