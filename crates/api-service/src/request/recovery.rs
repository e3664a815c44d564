//! The body of a recovery.

use ledger::{NewRecovery, Recoverable};
use serde_json::Value;
use time::OffsetDateTime;

use super::{
    fields::{Checked, Fields, boolean, distinct, string, timestamp, violation},
    json::Members,
};

const KNOWN: [&str; 5] = ["since", "from", "until", "states", "count_only"];

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum RecoveryRequest {
    /// To recover these.
    Recover(NewRecovery),
    /// To know how many these are.
    Count(NewRecovery),
}

impl RecoveryRequest {
    /// Checks every member and reports all violations at once.
    pub(crate) fn read(members: &Members) -> Checked<Self> {
        let is_given = |field: &str| members.0.iter().any(|(name, _)| name == field);
        let mut fields = Fields::of(members);
        let name = if is_given("from") && !is_given("since") { "from" } else { "since" };
        let since = fields.required(name, |value| past(name, value));
        if name == "since" {
            fields.optional("from", |_| {
                violation::<()>("from", "repeated_field", "is another name of since, which is given too")
            });
        }
        let until = fields.optional("until", |value| after(since, value));
        let states = fields.optional("states", states).unwrap_or_else(|| vec![Recoverable::Dropped]);
        let is_count = fields.optional("count_only", |value| boolean("count_only", value)) == Some(true);
        let wanted = since.map(|since| NewRecovery { since, until, states, outcomes: Vec::new() });
        fields.finish(&KNOWN, wanted.map(if is_count { Self::Count } else { Self::Recover }))
    }
}

fn past(field: &str, value: &Value) -> Checked<OffsetDateTime> {
    let moment = timestamp(field, value)?.as_datetime();
    if moment > OffsetDateTime::now_utc() {
        return violation(field, "in_the_future", "must not be in the future");
    }
    Ok(moment)
}

/// The end of the span. A beginning that is faulty itself does not make it so.
fn after(since: Option<OffsetDateTime>, value: &Value) -> Checked<OffsetDateTime> {
    let until = timestamp("until", value)?.as_datetime();
    if since.is_some_and(|since| until <= since) {
        return violation("until", "not_after_since", "must be later than the beginning of the span");
    }
    Ok(until)
}

fn states(value: &Value) -> Checked<Vec<Recoverable>> {
    distinct("states", value, "state", "repeated_state", |field, entry| {
        let state = string(field, entry)?.parse();
        state.or_else(|_| violation(field, "unknown_state", "must be dropped or skipped"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn read(body: &Value) -> Checked<RecoveryRequest> {
        let members = body.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.clone()));
        RecoveryRequest::read(&Members(members.collect()))
    }

    const SINCE: &str = "2026-03-01T00:00:00Z";

    #[test]
    fn only_the_beginning_of_the_span_is_needed_and_has_two_names() {
        let plain = NewRecovery {
            since: datetime!(2026-03-01 00:00 UTC),
            until: None,
            states: vec![Recoverable::Dropped],
            outcomes: Vec::new(),
        };
        let all = NewRecovery {
            until: Some(datetime!(2026-03-02 00:00 UTC)),
            states: vec![Recoverable::Skipped, Recoverable::Dropped],
            ..plain.clone()
        };
        let more = json!({"since": SINCE, "until": "2026-03-02T01:00:00+01:00", "states": ["skipped", "dropped"],
                          "count_only": true});
        for (body, request) in [
            (json!({"since": SINCE}), RecoveryRequest::Recover(plain.clone())),
            (json!({"from": SINCE, "count_only": false}), RecoveryRequest::Recover(plain)),
            (more, RecoveryRequest::Count(all)),
        ] {
            assert_eq!(read(&body).unwrap(), request, "{body}");
        }
    }

    #[test]
    fn every_faulty_field_is_named() {
        for (body, expected) in [
            (json!({}), &[("since", "required")][..]),
            (json!({"since": SINCE, "from": SINCE}), &[("from", "repeated_field")]),
            (json!({"from": "9000-01-01T00:00:00Z"}), &[("from", "in_the_future")]),
            (json!({"since": SINCE, "until": SINCE}), &[("until", "not_after_since")]),
            (json!({"since": 1, "until": SINCE}), &[("since", "wrong_type")]),
            (json!({"since": SINCE, "states": []}), &[("states", "empty")]),
            (json!({"since": SINCE, "states": "dropped"}), &[("states", "wrong_type")]),
            (
                json!({"until": "soon", "states": ["dropped", "succeeded", "dropped", 1], "count_only": 1, "to": 1}),
                &[
                    ("since", "required"),
                    ("until", "invalid_timestamp"),
                    ("states[1]", "unknown_state"),
                    ("states[2]", "repeated_state"),
                    ("states[3]", "wrong_type"),
                    ("count_only", "wrong_type"),
                    ("to", "unknown_field"),
                ],
            ),
        ] {
            let faults = read(&body).unwrap_err();
            let found: Vec<_> = faults.iter().map(|fault| (fault.field.as_str(), fault.code)).collect();
            assert_eq!(found, expected, "{body}");
        }
    }
}
