//! Lists and their pages. A list leaves out rows with values that only a later version knows.

use std::pin::pin;

use diesel::{
    deserialize,
    result::{Error as QueryError, QueryResult},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl, methods::LoadQuery};
use domain::error_chain;
use futures_util::StreamExt;

/// A page of a list: at most `limit` entries that come after `after`.
#[derive(Clone, Copy, Debug)]
pub struct Page<Key> {
    /// The last key of the previous page.
    pub after: Option<Key>,
    /// The most entries.
    pub limit: u16,
}

/// The values of a row, unless this version does not know one of them.
pub(crate) fn known<T>(row: deserialize::Result<T>) -> Option<T> {
    row.inspect_err(|error| tracing::warn!(error = error_chain(error.as_ref()), "a row is left out of a list")).ok()
}

/// Loads the rows with values that this version knows.
pub(crate) async fn load_known<'query, T: Send>(
    query: impl LoadQuery<'query, AsyncPgConnection, T> + 'query,
    conn: &mut AsyncPgConnection,
) -> QueryResult<Vec<T>> {
    load_counted(query, conn).await.map(|(known, _)| known)
}

/// Loads a page of rows with values that this version knows: fewer than `most` only if there are no further ones.
pub(crate) async fn load_page<'query, T: Send, Q: LoadQuery<'query, AsyncPgConnection, T> + 'query>(
    most: u16,
    query: impl Fn(i64) -> Q,
    conn: &mut AsyncPgConnection,
) -> QueryResult<Vec<T>> {
    let mut limit = i64::from(most);
    loop {
        let (mut known, count) = load_counted(query(limit), conn).await?;
        if known.len() >= usize::from(most) || count < limit {
            known.truncate(most.into());
            return Ok(known);
        }
        limit += i64::from(most);
    }
}

/// Loads the rows with values that this version knows. Returns them with the count of all rows.
async fn load_counted<'query, T: Send>(
    query: impl LoadQuery<'query, AsyncPgConnection, T> + 'query,
    conn: &mut AsyncPgConnection,
) -> QueryResult<(Vec<T>, i64)> {
    let mut rows = pin!(query.load_stream::<T>(conn).await?);
    let (mut found, mut count) = (Vec::new(), 0);
    while let Some(row) = rows.next().await {
        count += 1;
        match row {
            Err(QueryError::DeserializationError(error)) => found.extend(known(Err(error))),
            row => found.push(row?),
        }
    }
    Ok((found, count))
}
