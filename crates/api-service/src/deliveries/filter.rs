//! The filters of the delivery log.

use domain::DeliveryState;
use ledger::DeliveryFilter;

use crate::http::{
    Violation,
    list::{Filter, moment},
};

/// `state`, `event_type`, `created_after` (at this time or later) and `created_before`.
impl Filter for DeliveryFilter {
    const PARAMETER_NAMES: &str = "limit, cursor, state, event_type, created_after and created_before";

    fn take(&mut self, name: &str, value: &str) -> Option<Result<(), Violation>> {
        Some(match name {
            "state" => state(value).map(|state| self.state = Some(state)),
            "event_type" => {
                let known = value.parse().map_err(|unknown: domain::UnknownEventType| unknown.to_string());
                let event_type = known.map_err(|message| Violation::new(name, "unknown_event_type", message));
                event_type.map(|event_type| self.event_type = Some(event_type))
            }
            "created_after" => moment(name, value).map(|from| self.created_from = Some(from)),
            "created_before" => moment(name, value).map(|until| self.created_until = Some(until)),
            _ => return None,
        })
    }
}

fn state(text: &str) -> Result<DeliveryState, Violation> {
    let known = DeliveryState::ALL.map(DeliveryState::as_str).join(", ");
    text.parse().map_err(|_| Violation::new("state", "unknown_state", format!("must be one of {known}")))
}

#[cfg(test)]
mod tests {
    use domain::{DeliveryId, EventType};
    use time::macros::datetime;

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
        let query = "state=dropped&event_type=quote.closed&limit=3\
                     &created_after=2026-03-01T10:30:00%2B01:00&created_before=2026-03-02T00:00:00.5Z";
        let filter = read(query).unwrap();
        assert_eq!((filter.state, filter.event_type), (Some(DeliveryState::Dropped), Some(EventType::QuoteClosed)));
        assert_eq!(filter.created_from, Some(datetime!(2026-03-01 09:30 UTC)));
        assert_eq!(filter.created_until, Some(datetime!(2026-03-02 00:00:00.5 UTC)));
    }

    #[test]
    fn all_faulty_ones_are_named() {
        let query =
            "state=lost&event_type=quote.opened&created_after=yesterday&created_before=2026-03-01&since=1&limit=0";
        let expected = [
            ("state", "unknown_state"),
            ("event_type", "unknown_event_type"),
            ("created_after", "invalid_timestamp"),
            ("created_before", "invalid_timestamp"),
            ("since", "unknown_parameter"),
            ("limit", "invalid_limit"),
        ];
        assert_eq!(read(query).unwrap_err(), expected.map(|(field, code)| (field.to_owned(), code)));
    }
}
