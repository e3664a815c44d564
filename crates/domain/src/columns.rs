//! The types as columns of PostgreSQL: an id is a UUID, a name is a text. An unknown name, of a later version, is an error.

use std::{error::Error, str::FromStr};

use diesel::{
    deserialize::{self, FromSql},
    pg::{Pg, PgValue},
    serialize::{self, Output, ToSql},
    sql_types::{Text, Uuid as SqlUuid},
};
use uuid::Uuid;

use crate::{DeliveryId, DeliveryState, EventId, EventType, KeyId, OutcomeClass, TenantId, WebhookId};

macro_rules! ids {
    ($($id:ty),+ $(,)?) => { $(
        impl FromSql<SqlUuid, Pg> for $id {
            fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
                <Uuid as FromSql<SqlUuid, Pg>>::from_sql(value).map(Self::from)
            }
        }

        impl ToSql<SqlUuid, Pg> for $id {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                <Uuid as ToSql<SqlUuid, Pg>>::to_sql(&self.as_uuid(), &mut out.reborrow())
            }
        }
    )+ };
}

macro_rules! names {
    ($($name:ty),+ $(,)?) => { $(
        impl FromSql<Text, Pg> for $name {
            fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
                parse_name(&value)
            }
        }

        impl ToSql<Text, Pg> for $name {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                <str as ToSql<Text, Pg>>::to_sql(self.as_str(), out)
            }
        }
    )+ };
}

/// Parses a stored name. An unknown name is an error.
pub fn parse_name<T: FromStr<Err: Error + Send + Sync + 'static>>(name: &PgValue<'_>) -> deserialize::Result<T> {
    Ok(std::str::from_utf8(name.as_bytes())?.parse()?)
}

ids!(DeliveryId, EventId, KeyId, TenantId, WebhookId);
names!(DeliveryState, EventType, OutcomeClass);
