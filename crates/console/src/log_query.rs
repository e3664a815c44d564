//! What of a log is asked for.

use maud::{Markup, html};

use crate::{
    FieldFault,
    text::{query, sentence},
};

/// What of the log is asked for, as it was written in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The state.
    pub state: String,
    /// The event type.
    pub event_type: String,
    /// Of events that fired at this time or later.
    pub from: String,
    /// Of events that fired before this time.
    pub until: String,
    /// Where the page begins. Empty for the newest.
    pub cursor: String,
    /// The range of the charts.
    pub range: String,
    /// What cannot be used.
    pub faults: Vec<FieldFault>,
}

/// The longest part of an address that leads back to the log.
const MAX_WAY_BACK_BYTES: usize = 500;

impl LogQuery {
    pub(crate) fn is_filtered(&self) -> bool {
        !self.state.is_empty() || self.is_narrow()
    }

    /// Whether less than all of a state is asked for.
    pub(crate) fn is_narrow(&self) -> bool {
        !(self.event_type.is_empty() && self.from.is_empty() && self.until.is_empty())
    }

    /// What is wrong with a field, beside it.
    pub(crate) fn fault(&self, field: &str) -> Markup {
        let faults: Vec<_> = FieldFault::of(&self.faults, field).collect();
        html! { @if !faults.is_empty() { span.fault #{ (field) "-fault" } role="alert" { @for fault in faults { (sentence(fault)) " " } } } }
    }

    /// What is wrong with what has no field of its own.
    pub(crate) fn other_faults(&self) -> Markup {
        html! {
            @for fault in self.faults.iter().filter(|fault| !["event_type", "from", "until"].contains(&&*fault.field)) {
                p.fault #{ (fault.field) "-fault" } role="alert" { "The " (fault.field) " " (fault.message) "." }
            }
        }
    }

    /// The address of the log with this cursor.
    pub(crate) fn address(&self, cursor: &str) -> String {
        format!("{}#log", self.written(&self.range, cursor))
    }

    /// The address of the newest page of a state. Empty for every state.
    pub(crate) fn with_state(&self, state: &str) -> String {
        format!("{}#log", Self { state: state.to_owned(), ..self.clone() }.written(&self.range, ""))
    }

    /// The address of the same page with another range.
    pub(crate) fn with_range(&self, range: &str) -> String {
        self.written(range, &self.cursor)
    }

    /// The query string of a delivery's page that leads back to this part of the log. Empty if it would be long.
    pub fn way_back(&self) -> String {
        Some(self.written(&self.range, &self.cursor))
            .filter(|query| (2..MAX_WAY_BACK_BYTES).contains(&query.len()))
            .unwrap_or_default()
    }

    fn written(&self, range: &str, cursor: &str) -> String {
        let Self { state, event_type, from, until, .. } = self;
        let own = [("state", &**state), ("event_type", event_type), ("from", from), ("until", until)];
        format!("?{}", query([("range", range)].into_iter().chain(own).chain([("cursor", cursor)])))
    }
}
