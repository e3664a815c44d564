//! The filters of the delivery log.

use std::fmt::Display;

use domain::{DeliveryState, EventId, EventType, OutcomeClass, UnknownEventType};
use ledger::DeliveryFilter;

use crate::http::{
    Violation,
    list::{Filter, moment, text, truth},
};

/// The most bytes of a text that is searched for.
const MAX_TEXT_BYTES: usize = 256;

impl Filter for DeliveryFilter {
    const PARAMETER_NAMES: &str = "limit, cursor, state, outcome, event_type, event_id, is_test, occurred_after, \
                                   occurred_before and contains";
    const REPEATABLE: &[&str] = &["state"];

    fn take(&mut self, name: &str, value: &str) -> Option<Result<(), Violation>> {
        Some(match name {
            "state" => states(value).map(|states| self.states.extend(states)),
            "outcome" => {
                one_of(name, value, "unknown_outcome", OutcomeClass::ALL).map(|outcome| self.outcome = Some(outcome))
            }
            "event_type" => {
                let known = value.parse().map_err(|unknown: UnknownEventType| unknown.to_string());
                let event_type = known.map_err(|message| Violation::new(name, "unknown_event_type", message));
                event_type.map(|event_type: EventType| self.event_type = Some(event_type))
            }
            "event_id" => {
                let id = value.parse().map_err(|_| Violation::new(name, "invalid_id", "must be a UUID"));
                id.map(|id: EventId| self.event = Some(id))
            }
            "is_test" => truth(name, value).map(|is_test| self.is_test = Some(is_test)),
            "occurred_after" => moment(name, value).map(|from| self.occurred_after = Some(from)),
            "occurred_before" => moment(name, value).map(|to| self.occurred_before = Some(to)),
            "contains" => searchable(name, value).map(|text| self.contains = Some(text)),
            _ => return None,
        })
    }
}

/// Reads states with commas between them.
fn states(text: &str) -> Result<Vec<DeliveryState>, Violation> {
    text.split(',').map(|name| one_of("state", name, "unknown_state", DeliveryState::ALL)).collect()
}

fn one_of<T: Copy + Display, const N: usize>(
    name: &str,
    text: &str,
    code: &'static str,
    all: [T; N],
) -> Result<T, Violation> {
    let found = all.into_iter().find(|one| one.to_string() == text);
    let names = || all.map(|one| one.to_string()).join(", ");
    found.ok_or_else(|| Violation::new(name, code, format!("must be one of {}", names())))
}

/// Reads a text that bodies are searched for.
pub(crate) fn searchable(name: &str, value: &str) -> Result<String, Violation> {
    match value.len() {
        1..=MAX_TEXT_BYTES => text(name, value),
        _ => Err(Violation::new(name, "invalid_length", format!("must have 1 to {MAX_TEXT_BYTES} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use domain::DeliveryId;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::http::{Cursors, Query};

    fn read(query: &str) -> Result<DeliveryFilter, Vec<(String, &'static str)>> {
        let violations = |violations: Vec<Violation>| {
            violations.into_iter().map(|violation| (violation.field, violation.code)).collect()
        };
        let list = Cursors::of("/");
        Query::<DeliveryId, DeliveryFilter>::read(query, list).map(|Query(_, filter, _)| filter).map_err(violations)
    }

    #[test]
    fn each_filter_is_read() {
        let query = "state=dropped,skipped&state=retrying&event_type=quote.closed&limit=3&outcome=refused_address\
                     &event_id=0192F0C1-0000-7000-8000-000000000001&is_test=false&contains=Q-2026%2b0117\
                     &occurred_after=2026-03-01T10:30:00%2B01:00&occurred_before=2026-03-02T00:00:00.5Z";
        let filter = read(query).unwrap();
        assert_eq!(filter.states, [DeliveryState::Dropped, DeliveryState::Skipped, DeliveryState::Retrying]);
        assert_eq!(
            (filter.outcome, filter.event_type),
            (Some(OutcomeClass::RefusedAddress), Some(EventType::QuoteClosed))
        );
        let event = Uuid::from_u128(0x0192_f0c1_0000_7000_8000_0000_0000_0001);
        assert_eq!((filter.event, filter.is_test), (Some(event.into()), Some(false)));
        assert_eq!(filter.occurred_after, Some(datetime!(2026-03-01 09:30 UTC)));
        assert_eq!(filter.occurred_before, Some(datetime!(2026-03-02 00:00:00.5 UTC)));
        assert_eq!(filter.contains.as_deref(), Some("Q-2026+0117"));
    }

    #[test]
    fn all_faulty_ones_are_named() {
        let query = "state=dropped,lost&event_type=quote.opened&occurred_after=yesterday&occurred_before=2026-03-01\
                     &outcome=bad&event_id=1&is_test=yes&contains=&since=1&limit=0&outcome=tls";
        let expected = [
            ("state", "unknown_state"),
            ("event_type", "unknown_event_type"),
            ("occurred_after", "invalid_timestamp"),
            ("occurred_before", "invalid_timestamp"),
            ("outcome", "unknown_outcome"),
            ("event_id", "invalid_id"),
            ("is_test", "invalid_boolean"),
            ("contains", "invalid_length"),
            ("since", "unknown_parameter"),
            ("limit", "invalid_limit"),
            ("outcome", "repeated_parameter"),
        ];
        assert_eq!(read(query).unwrap_err(), expected.map(|(field, code)| (field.to_owned(), code)));
        for (text, code) in
            [("a%00", "control_character"), (&*"x".repeat(257), "invalid_length"), ("", "invalid_length")]
        {
            assert_eq!(read(&format!("contains={text}")).unwrap_err(), [("contains".to_owned(), code)], "{text}");
        }
    }
}
