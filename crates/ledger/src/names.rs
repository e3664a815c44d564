//! Enums that are stored by their names. An unknown name, of a later version, is an error.

use std::{error::Error, str::FromStr};

use diesel::{
    deserialize::{self, FromSql, FromSqlRow},
    pg::{Pg, PgValue},
    sql_types::Text,
};
use domain::OutcomeClass;

/// Reads the value of a stored name.
pub(crate) fn named<T: FromStr<Err: Error + Send + Sync + 'static>>(name: &PgValue<'_>) -> deserialize::Result<T> {
    Ok(std::str::from_utf8(name.as_bytes())?.parse()?)
}

/// A stored [`OutcomeClass`]: `deserialize_as = StoredOutcome`.
#[derive(FromSqlRow)]
pub(crate) struct StoredOutcome(OutcomeClass);

impl FromSql<Text, Pg> for StoredOutcome {
    fn from_sql(name: PgValue<'_>) -> deserialize::Result<Self> {
        named(&name).map(Self)
    }
}

impl From<StoredOutcome> for OutcomeClass {
    fn from(stored: StoredOutcome) -> Self {
        stored.0
    }
}
