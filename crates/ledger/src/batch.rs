//! Statements over batches: one prepared statement serves any number of rows.

use std::{error::Error, io::Write};

use bytes::{Bytes, BytesMut};
use diesel::{
    pg::Pg,
    serialize::{self, IsNull, Output, ToSql},
    sql_types::Binary,
};
use tokio_postgres::types::{self as postgres, Type};

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

/// Defines a statement over one or more batches, each given as arrays of columns. Its text is `WITH`, the batches, and
/// `$sql`, which begins with a comma if it adds to the `WITH`. A batch is a CTE: `name { … }` with a row for each place
/// in the arrays, `name as arrays { … }` with one row, which holds the arrays. The statement has a static query id, so
/// each connection prepares it once.
macro_rules! batch_statement {
    (
        $name:ident -> $output:ty;
        $($batch:ident $(as $form:ident)? { $($column:ident: $rust:ty => $sql_type:ty),+ $(,)? })+;
        $sql:expr
    ) => {
        #[derive(Default, diesel::query_builder::QueryId)]
        pub(crate) struct $name {
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

        impl $crate::row_fault::Batches for $name {
            fn arrays(&self) -> Vec<(&(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type)> {
                vec![$($($crate::row_fault::array(&self.$column),)+)+]
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
