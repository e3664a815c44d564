//! Statements over batches: one prepared statement serves any number of rows.

mod row_fault;

use std::{error::Error, io::Write};

use bytes::{Bytes, BytesMut};
use diesel::{
    QueryResult,
    pg::Pg,
    query_builder::QueryFragment,
    serialize::{self, IsNull, Output, ToSql},
    sql_types::Binary,
};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use time::OffsetDateTime;
use tokio_postgres::types::{self as postgres, Type};
use uuid::Uuid;

/// Bytes for a column, not copied until they are written to the wire.
#[derive(Clone, Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql<Binary, Pg> for Blob {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&self.0)?;
        Ok(IsNull::No)
    }
}

impl postgres::ToSql for Blob {
    fn to_sql(&self, column: &Type, out: &mut BytesMut) -> Result<postgres::IsNull, Box<dyn Error + Sync + Send>> {
        postgres::ToSql::to_sql(&&self.0[..], column, out)
    }

    fn accepts(column: &Type) -> bool {
        <&[u8] as postgres::ToSql>::accepts(column)
    }

    postgres::to_sql_checked!();
}

/// A statement over batches, for the driver below diesel.
pub(crate) trait Batches: QueryFragment<Pg> {
    /// The arrays, in the order of their places in the text.
    fn arrays(&self) -> Vec<(&(dyn postgres::ToSql + Sync), Type)>;
}

/// A column of a batch.
pub(crate) trait ArrayColumn: postgres::ToSql + Sync {
    /// The type of an array of such values.
    const ARRAY: Type;
}

macro_rules! array_types {
    ($($rust:ty => $array:ident),+ $(,)?) => { $(impl ArrayColumn for $rust { const ARRAY: Type = Type::$array; })+ };
}
array_types! {
    Uuid => UUID_ARRAY, bool => BOOL_ARRAY, i16 => INT2_ARRAY, i32 => INT4_ARRAY, i64 => INT8_ARRAY, f64 => FLOAT8_ARRAY,
    String => TEXT_ARRAY, Vec<u8> => BYTEA_ARRAY, Blob => BYTEA_ARRAY, OffsetDateTime => TIMESTAMPTZ_ARRAY,
}

impl<T: ArrayColumn> ArrayColumn for Option<T> {
    const ARRAY: Type = T::ARRAY;
}

/// An array with its type.
pub(crate) fn array<T: ArrayColumn>(values: &Vec<T>) -> (&(dyn postgres::ToSql + Sync), Type) {
    (values, T::ARRAY)
}

/// From here on, the transaction plans its statements with their values, so that they lock the partitions of these days
/// only.
pub(crate) async fn plan_with_values(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    conn.batch_execute("SET LOCAL plan_cache_mode = force_custom_plan").await
}

/// Defines a statement over one or more batches, each given as arrays of columns. Its text is `WITH`, the batches, and
/// `$sql`, which begins with a comma if it adds to the `WITH`. A batch is a CTE: `name { … }` with a row for each place
/// in the arrays, `name as arrays { … }` with one row, which holds the arrays. Each connection prepares it once; with
/// `of week` after the type of its rows, once for each week, whose bounds are the CTE `week`.
macro_rules! batch_statement {
    (
        $name:ident -> $output:ty $(, of $week:ident)?;
        $($batch:ident $(as $form:ident)? { $($column:ident: $rust:ty => $sql_type:ty),+ $(,)? })+;
        $sql:expr
    ) => {
        #[derive(Default)]
        pub(crate) struct $name {
            $(pub(crate) $week: $crate::partitions::Week,)?
            $($(pub(crate) $column: Vec<$rust>,)+)+
        }

        impl diesel::query_builder::Query for $name {
            type SqlType = $output;
        }

        impl diesel::query_builder::QueryFragment<diesel::pg::Pg> for $name {
            fn walk_ast<'b>(
                &'b self,
                mut out: diesel::query_builder::AstPass<'_, 'b, diesel::pg::Pg>,
            ) -> diesel::QueryResult<()> {
                let mut before = "WITH ";
                $(
                    out.push_sql(before);
                    out.push_sql(&self.$week.bounds(stringify!($week)));
                    before = ", ";
                )?
                $(
                    out.push_sql(before);
                    out.push_sql(concat!(stringify!($batch), "(", $crate::batch::columns!($($column),+), ") AS "));
                    let (mut before_column, end) = $crate::batch::form!($($form)?);
                    $(
                        out.push_sql(before_column);
                        out.push_bind_param::<diesel::sql_types::Array<$sql_type>, _>(&self.$column)?;
                        before_column = ", ";
                    )+
                    let _ = before_column;
                    out.push_sql(end);
                    before = ", ";
                )+
                let _ = before;
                out.push_sql($sql);
                Ok(())
            }
        }

        /// The statement is cached by its text.
        impl diesel::query_builder::QueryId for $name {
            type QueryId = ();

            const HAS_STATIC_QUERY_ID: bool = false;
        }

        impl $crate::batch::Batches for $name {
            fn arrays(&self) -> Vec<(&(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type)> {
                vec![$($($crate::batch::array(&self.$column),)+)+]
            }
        }
    };
}

macro_rules! columns {
    ($first:ident $(, $rest:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($rest))*) };
}

/// What stands before and after the arrays. A CTE that is not materialized names its arrays and does not copy them.
macro_rules! form {
    () => {
        ("(SELECT * FROM unnest(", "))\n")
    };
    (arrays) => {
        ("NOT MATERIALIZED (SELECT ", ")\n")
    };
}

pub(crate) use {batch_statement, columns, form};
