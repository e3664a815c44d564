//! Checks the fields of a recovery: of a body and of a form.

use ledger::{NewRecovery, Recoverable};
use time::OffsetDateTime;

use crate::{
    http::{
        Checked, Fields, FromBody, Given, Members, Source,
        fields::{boolean, distinct, event_type, string, timestamp, violation},
    },
    state::Rules,
};

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum RecoveryRequest {
    /// To recover these.
    Recover(NewRecovery),
    /// To know how many these are.
    Count(NewRecovery),
}

/// The name of a member, and another name of the same, of which the second is the older.
type Names = [&'static str; 2];

const FROM: Names = ["from", "since"];
const TO: Names = ["to", "until"];

impl FromBody for RecoveryRequest {
    fn read(members: Members, _: &Rules) -> Checked<Self> {
        let is_given = |name: &str| members.names().contains(&name);
        let given =
            |[name, older]: Names| if is_given(older) && !is_given(name) { [older, name] } else { [name, older] };
        let (from, to) = (given(FROM), given(TO));
        Fields::check(&members, |fields| {
            let wanted = wanted(fields, (from[0], to[0]));
            for [name, other] in [from, to] {
                fields.optional(other, |field, _| {
                    violation::<()>(field, "repeated_field", format!("is another name of {name}, which is given too"))
                });
            }
            let is_count = fields.optional("count_only", boolean) == Some(true);
            wanted.map(if is_count { Self::Count } else { Self::Recover })
        })
    }
}

/// Reads the recovery that a form asks for.
pub(crate) fn of_form(form: &dyn Source) -> Checked<NewRecovery> {
    Fields::check(form, |fields| wanted(fields, (FROM[0], TO[0])))
}

/// Reads a recovery by the names of the period's ends. A form's end may be empty, and its event types too.
fn wanted(fields: &mut Fields<'_>, (from, to): (&'static str, &'static str)) -> Option<NewRecovery> {
    let since = fields.required(from, past);
    let until = fields.optional(to, |field, given| match given {
        Given::Form(texts) if texts.concat().is_empty() => Ok(None),
        given => after(since, field, given).map(Some),
    });
    let states = fields.optional("states", states).unwrap_or_else(|| vec![Recoverable::Dropped]);
    let event_types = fields.optional("event_types", |field, given| match given {
        Given::Form(texts) if texts.is_empty() => Ok(Vec::new()),
        given => distinct(field, given, "event type", "repeated_event_type", event_type),
    });
    let event_types = event_types.unwrap_or_default();
    since.map(|since| NewRecovery { since, until: until.flatten(), states, outcomes: Vec::new(), event_types })
}

fn past(field: &str, given: &Given<'_>) -> Checked<OffsetDateTime> {
    let moment = timestamp(field, given)?.as_datetime();
    if moment > OffsetDateTime::now_utc() {
        return violation(field, "in_the_future", "must not be in the future");
    }
    Ok(moment)
}

/// The end of the period. A beginning that is faulty itself does not make it so.
fn after(since: Option<OffsetDateTime>, field: &str, given: &Given<'_>) -> Checked<OffsetDateTime> {
    let until = timestamp(field, given)?.as_datetime();
    if since.is_some_and(|since| until <= since) {
        return violation(field, "not_after_from", "must be later than the beginning of the period");
    }
    Ok(until)
}

fn states(field: &str, given: &Given<'_>) -> Checked<Vec<Recoverable>> {
    distinct(field, given, "state", "repeated_state", |field, given| {
        let state = string(field, given)?.parse();
        state.or_else(|_| violation(field, "unknown_state", "must be dropped or skipped"))
    })
}

#[cfg(test)]
mod tests {
    use domain::{AddressPolicy, EventType};
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;

    const RULES: Rules = Rules { name_chars: 0, url_chars: 0, address_policy: AddressPolicy::allowing(Vec::new()) };

    fn read(body: &Value) -> Checked<RecoveryRequest> {
        let members = body.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.clone()));
        RecoveryRequest::read(Members(members.collect()), &RULES)
    }

    const FROM: &str = "2026-03-01T00:00:00Z";

    #[test]
    fn only_the_beginning_of_the_period_is_needed_and_both_ends_have_two_names() {
        let plain = NewRecovery {
            since: datetime!(2026-03-01 00:00 UTC),
            until: None,
            states: vec![Recoverable::Dropped],
            outcomes: Vec::new(),
            event_types: Vec::new(),
        };
        let all = NewRecovery {
            until: Some(datetime!(2026-03-02 00:00 UTC)),
            states: vec![Recoverable::Skipped, Recoverable::Dropped],
            event_types: vec![EventType::QuoteClosed, EventType::ReturnNoteCreated],
            ..plain.clone()
        };
        let to = "2026-03-02T01:00:00+01:00";
        let more = |from: &str, until: &str| {
            let types = ["quote.closed", "return_note.created"];
            json!({from: FROM, until: to, "states": ["skipped", "dropped"], "event_types": types, "count_only": true})
        };
        for (body, request) in [
            (json!({"since": FROM}), RecoveryRequest::Recover(plain.clone())),
            (json!({"from": FROM, "count_only": false}), RecoveryRequest::Recover(plain)),
            (more("from", "to"), RecoveryRequest::Count(all.clone())),
            (more("since", "to"), RecoveryRequest::Count(all.clone())),
            (more("from", "until"), RecoveryRequest::Count(all)),
        ] {
            assert_eq!(read(&body).unwrap(), request, "{body}");
        }
    }

    #[test]
    fn every_faulty_field_is_named() {
        for (body, expected) in [
            (json!({}), &[("from", "required")][..]),
            (json!({"since": FROM, "from": FROM}), &[("since", "repeated_field")]),
            (json!({"from": FROM, "to": "2026-03-02T00:00:00Z", "until": 1}), &[("until", "repeated_field")]),
            (json!({"from": "9000-01-01T00:00:00Z"}), &[("from", "in_the_future")]),
            (json!({"from": FROM, "to": FROM}), &[("to", "not_after_from")]),
            (json!({"since": FROM, "until": FROM}), &[("until", "not_after_from")]),
            (json!({"since": 1, "until": FROM}), &[("since", "wrong_type")]),
            (json!({"from": FROM, "states": []}), &[("states", "empty")]),
            (json!({"from": FROM, "states": "dropped"}), &[("states", "wrong_type")]),
            (json!({"from": FROM, "event_types": []}), &[("event_types", "empty")]),
            (
                json!({"from": FROM, "event_types": ["quote.closed", "quote.opened", "quote.closed"]}),
                &[("event_types[1]", "unknown_event_type"), ("event_types[2]", "repeated_event_type")],
            ),
            (
                json!({"until": "soon", "states": ["dropped", "succeeded", "dropped", 1], "count_only": 1, "event": 1}),
                &[
                    ("from", "required"),
                    ("until", "invalid_timestamp"),
                    ("states[1]", "unknown_state"),
                    ("states[2]", "repeated_state"),
                    ("states[3]", "wrong_type"),
                    ("count_only", "wrong_type"),
                    ("event", "unknown_field"),
                ],
            ),
        ] {
            let faults = read(&body).unwrap_err();
            let found: Vec<_> = faults.iter().map(|fault| (fault.field.as_str(), fault.code)).collect();
            assert_eq!(found, expected, "{body}");
        }
    }
}
