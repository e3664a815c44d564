//! Statements over batches: one prepared statement serves any number of rows.

use std::io::Write;

use bytes::Bytes;
use diesel::{
    pg::Pg,
    serialize::{self, IsNull, Output, ToSql},
    sql_types::Binary,
};

/// Bytes for a column, not copied until they are written to the wire.
#[derive(Clone, Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql<Binary, Pg> for Blob {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&self.0)?;
        Ok(IsNull::No)
    }
}

/// Defines a statement over one or more batches of rows, each given as arrays of columns. `$text` continues after
/// `WITH batch(columns) AS (…)`. It has a static query id, so each connection prepares it once.
macro_rules! batch_statement {
    (
        $(#[$doc:meta])*
        $name:ident -> $output:ty;
        $($batch:ident { $($column:ident: $rust:ty => $sql:ty),+ $(,)? })+;
        $text:expr
    ) => {
        $(#[$doc])*
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
                let mut opening = "WITH ";
                $(
                    out.push_sql(opening);
                    out.push_sql(concat!(stringify!($batch), "(", $crate::batch::columns!($($column),+), ") AS (SELECT * FROM unnest"));
                    let mut separator = "(";
                    $(
                        out.push_sql(separator);
                        out.push_bind_param::<diesel::sql_types::Array<$sql>, _>(&self.$column)?;
                        separator = ", ";
                    )+
                    let _ = separator;
                    out.push_sql("))");
                    opening = ", ";
                )+
                let _ = opening;
                out.push_sql($text);
                Ok(())
            }
        }
    };
}

macro_rules! columns {
    ($first:ident $(, $rest:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($rest))*) };
}

pub(crate) use {batch_statement, columns};
