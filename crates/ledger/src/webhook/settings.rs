//! The settings of a webhook.

use std::collections::BTreeSet;

use diesel::{pg::Pg, prelude::*};
use domain::EventType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::tables::webhooks;

/// The settings of a webhook, as its administrators write them. The API, the history, notices and forms show all of them, so
/// no secret is among them.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, AsChangeset, Insertable, Queryable, Selectable,
)]
#[diesel(table_name = webhooks, check_for_backend(Pg), treat_none_as_null = true)]
#[serde(default)]
pub struct WebhookSettings {
    /// The label.
    pub name: String,
    /// Notes for administrators. Empty if there are none.
    pub description: String,
    /// The webhook's id in the administrators' own system. No two of a tenant's webhooks have the same.
    pub external_id: Option<String>,
    /// The destination, as it was written.
    pub url: String,
    /// The event types to which the webhook is subscribed.
    pub events: Vec<EventType>,
    /// False while the webhook is paused.
    pub is_active: bool,
}

/// The settings of an object's members. What is absent has no value.
impl From<Value> for WebhookSettings {
    fn from(members: Value) -> Self {
        serde_json::from_value(members).unwrap_or_default()
    }
}

impl WebhookSettings {
    /// Returns the members that differ from earlier settings, each with both values. Event types in another order are the
    /// same, and get their earlier order.
    pub fn changes(&mut self, before: &Self) -> Map<String, Value> {
        let set = |settings: &Self| BTreeSet::from_iter(settings.events.iter().copied());
        if set(self) == set(before) {
            self.events.clone_from(&before.events);
        }
        let mut from = before.members();
        let changed = self.members().into_iter().filter_map(|(name, to)| {
            let from = from.remove(&name).filter(|from| *from != to)?;
            Some((name, json!({"from": from, "to": to})))
        });
        changed.collect()
    }

    /// The settings as members of an object.
    pub fn members(&self) -> Map<String, Value> {
        match json!(self) {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::EventType::{QuoteAccepted, QuoteClosed, ReturnNoteCreated};

    use super::*;

    fn settings(events: &[EventType]) -> WebhookSettings {
        let (name, url) = ("A".to_owned(), "https://a.example/".to_owned());
        WebhookSettings { name, url, events: events.to_vec(), is_active: true, ..WebhookSettings::default() }
    }

    #[test]
    fn event_types_in_another_order_are_no_change() {
        let before = settings(&[QuoteClosed, QuoteAccepted]);
        for (events, is_changed) in [
            (&[QuoteClosed, QuoteAccepted][..], false),
            (&[QuoteAccepted, QuoteClosed], false),
            (&[QuoteClosed], true),
            (&[QuoteClosed, ReturnNoteCreated], true),
            (&[QuoteClosed, QuoteAccepted, ReturnNoteCreated], true),
        ] {
            let mut after = settings(events);
            let changes = after.changes(&before);
            assert_eq!(
                changes.keys().collect::<Vec<_>>(),
                if is_changed { vec!["events"] } else { vec![] },
                "{events:?}"
            );
            assert_eq!(after.events, if is_changed { events } else { &before.events }, "{events:?}");
        }
    }

    #[test]
    fn each_change_has_both_values() {
        let before = settings(&[QuoteClosed]);
        let mut after = WebhookSettings { name: "B".to_owned(), is_active: false, ..before.clone() };
        let changes = json!({"name": {"from": "A", "to": "B"}, "is_active": {"from": true, "to": false}});
        assert_eq!(Value::Object(after.changes(&before)), changes);
        assert!(before.clone().changes(&before).is_empty());
    }
}
