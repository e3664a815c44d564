//! A webhook's own headers. They are no settings, as their values are secrets: of these, only names are shown.

use diesel::{pg::Pg, prelude::*};
use serde_json::{Value, json};

use crate::{secrets::SealedHeaders, tables::webhooks};

/// The headers of a webhook in its row.
#[derive(Clone, Debug, Default, PartialEq, Eq, AsChangeset, Insertable, Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(Pg), treat_none_as_null = true)]
pub struct WebhookHeaders {
    /// The names, in their order, as they were written.
    #[diesel(column_name = header_names)]
    pub names: Vec<String>,
    /// Names with values.
    #[diesel(embed)]
    pub sealed: SealedHeaders,
}

/// A change of a webhook's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHeaders {
    /// The headers after the change.
    pub headers: WebhookHeaders,
    /// The names of those that were given a value, perhaps the value that they had.
    pub set: Vec<String>,
}

impl NewHeaders {
    /// The details of the change for the history: names of headers.
    pub(crate) fn details(&self, before: &WebhookHeaders) -> Value {
        let is_removed = |name: &&String| !self.headers.names.iter().any(|left| left.eq_ignore_ascii_case(name));
        let removed: Vec<_> = before.names.iter().filter(is_removed).collect();
        json!({"set": self.set, "removed": removed})
    }
}
