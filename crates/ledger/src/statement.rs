//! Statements of plain SQL. A value is bound by its Rust type, and a row is read into a plain struct, by the names of the
//! columns. Diesel prepares each anew, so that the server plans it with its values.

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, data_types::PgInterval},
    prelude::*,
    query_builder::{BoxedSqlQuery, SqlQuery},
    row::NamedRow,
    serialize::ToSql,
    sql_types::{
        Array, BigInt, Binary, Bool, Double, HasSqlType, Integer, Interval, Json, Nullable, SmallInt, Text,
        Timestamptz, Uuid as SqlUuid,
    },
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, EventId, EventType, OutcomeClass, TenantId, WebhookId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::lists::load_known;

/// A type of values of columns.
pub(crate) trait Column {
    /// The column's type.
    type Type: Send + 'static;
}

macro_rules! column_types {
    ($($rust:ty => $sql:ty),+ $(,)?) => { $(impl Column for $rust { type Type = $sql; })+ };
}
column_types! {
    bool => Bool, i16 => SmallInt, i32 => Integer, i64 => BigInt, f64 => Double, str => Text, String => Text,
    Vec<u8> => Binary, Value => Json, PgInterval => Interval, OffsetDateTime => Timestamptz, Uuid => SqlUuid,
    DeliveryId => SqlUuid, EventId => SqlUuid, TenantId => SqlUuid, WebhookId => SqlUuid,
    DeliveryState => Text, EventType => Text, OutcomeClass => Text,
}

impl<T: Column + ?Sized> Column for &T {
    type Type = T::Type;
}

impl<T: Column> Column for Option<T> {
    type Type = Nullable<T::Type>;
}

impl<T: Column> Column for Vec<T> {
    type Type = Array<T::Type>;
}

impl<T: Column> Column for [T] {
    type Type = Array<T::Type>;
}

macro_rules! tuples {
    ($(($($column:ident),+))+) => { $(impl<$($column: Column),+> Column for ($($column,)+) { type Type = ($($column::Type,)+); })+ };
}
tuples! { (A, B) (A, B, C) (A, B, C, D) }

/// A statement with its values.
pub(crate) struct Statement<'a>(BoxedSqlQuery<'a, Pg, SqlQuery>);

/// A statement with the places `$1`, `$2` and so on for its values.
pub(crate) fn sql<'a>(text: impl Into<String>) -> Statement<'a> {
    Statement(diesel::sql_query(text).into_boxed())
}

impl<'a> Statement<'a> {
    /// Binds the value of the next place.
    pub(crate) fn bind<T>(self, value: T) -> Self
    where
        T: Column + ToSql<T::Type, Pg> + Send + 'a,
        Pg: HasSqlType<T::Type>,
    {
        Self(self.0.bind::<T::Type, T>(value))
    }

    /// The rows.
    pub(crate) async fn load<R: Row>(self, conn: &mut AsyncPgConnection) -> QueryResult<Vec<R>> {
        self.0.load(conn).await
    }

    /// The rows with values that this version knows.
    pub(crate) async fn load_known<R: Row>(self, conn: &mut AsyncPgConnection) -> QueryResult<Vec<R>> {
        load_known(self.0, conn).await
    }

    /// The first row. The error is [`diesel::NotFound`] if there is none.
    pub(crate) async fn get_result<R: Row>(self, conn: &mut AsyncPgConnection) -> QueryResult<R> {
        self.0.get_result(conn).await
    }

    /// The rows as tuples, or as the values of the only column.
    pub(crate) async fn values<T>(self, conn: &mut AsyncPgConnection) -> QueryResult<Vec<T>>
    where
        T: Column + FromSqlRow<T::Type, Pg> + Send + 'static,
    {
        Ok(self.load(conn).await?.into_iter().map(|Values(values)| values).collect())
    }

    /// The first row as a tuple, or as the value of the only column.
    pub(crate) async fn value<T>(self, conn: &mut AsyncPgConnection) -> QueryResult<T>
    where
        T: Column + FromSqlRow<T::Type, Pg> + Send + 'static,
    {
        self.get_result(conn).await.map(|Values(values)| values)
    }

    /// Returns how many rows were changed.
    pub(crate) async fn execute(self, conn: &mut AsyncPgConnection) -> QueryResult<usize> {
        self.0.execute(conn).await
    }
}

/// A row that is read by the names of its columns.
pub(crate) trait Row: QueryableByName<Pg> + Send + 'static {}

impl<T: QueryableByName<Pg> + Send + 'static> Row for T {}

/// A row, by the places of its columns.
struct Values<T>(T);

impl<T: Column + FromSqlRow<T::Type, Pg>> QueryableByName<Pg> for Values<T> {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        T::build_from_row(row).map(Self)
    }
}

/// Reads a column of a row.
pub(crate) fn column<'a, T: Column + FromSql<T::Type, Pg>>(
    row: &impl NamedRow<'a, Pg>,
    name: &str,
) -> deserialize::Result<T> {
    NamedRow::get::<T::Type, T>(row, name)
}

/// Has structs read rows: each field the column of its name, and an embedded struct, after a semicolon, its own columns.
macro_rules! rows {
    ($($row:ident { $($field:ident),+ $(; $embedded:ident)? $(,)? })+) => { $(
        impl diesel::QueryableByName<diesel::pg::Pg> for $row {
            fn build<'a>(
                row: &impl diesel::row::NamedRow<'a, diesel::pg::Pg>,
            ) -> diesel::deserialize::Result<Self> {
                Ok(Self {
                    $($field: $crate::statement::column(row, stringify!($field))?,)+
                    $($embedded: diesel::QueryableByName::build(row)?,)?
                })
            }
        }
    )+ };
}

pub(crate) use rows;
