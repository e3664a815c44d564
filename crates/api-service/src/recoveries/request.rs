//! Checks the fields of a recovery: of a body and of a form.

use ledger::{NewRecovery, Recoverable};
use time::OffsetDateTime;

use crate::{
    http::{
        Checked, Fields, FromBody, Given, Members, Source,
        fields::{boolean, distinct, string, timestamp, violation},
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

impl FromBody for RecoveryRequest {
    fn read(members: Members, _: &Rules) -> Checked<Self> {
        let is_given = |field: &str| members.names().contains(&field);
        let (has_since, has_from) = (is_given("since"), is_given("from"));
        Fields::check(&members, |fields| {
            let since = if has_from && !has_since {
                fields.optional("since", past);
                fields.required("from", past)
            } else {
                let since = fields.required("since", past);
                fields.optional("from", |field, _| {
                    violation::<()>(field, "repeated_field", "is another name of since, which is given too")
                });
                since
            };
            let wanted = wanted(fields, since);
            let is_count = fields.optional("count_only", boolean) == Some(true);
            wanted.map(if is_count { Self::Count } else { Self::Recover })
        })
    }
}

/// Reads the recovery that a form asks for.
pub(crate) fn of_form(form: &dyn Source) -> Checked<NewRecovery> {
    Fields::check(form, |fields| {
        let since = fields.required("since", past);
        wanted(fields, since)
    })
}

/// Reads the rest of a recovery. A form's end of the span may be empty.
fn wanted(fields: &mut Fields<'_>, since: Option<OffsetDateTime>) -> Option<NewRecovery> {
    let until = fields.optional("until", |field, given| match given {
        Given::Form(texts) if texts.concat().is_empty() => Ok(None),
        given => after(since, field, given).map(Some),
    });
    let states = fields.optional("states", states).unwrap_or_else(|| vec![Recoverable::Dropped]);
    since.map(|since| NewRecovery { since, until: until.flatten(), states, outcomes: Vec::new() })
}

fn past(field: &str, given: &Given<'_>) -> Checked<OffsetDateTime> {
    let moment = timestamp(field, given)?.as_datetime();
    if moment > OffsetDateTime::now_utc() {
        return violation(field, "in_the_future", "must not be in the future");
    }
    Ok(moment)
}

/// The end of the span. A beginning that is faulty itself does not make it so.
fn after(since: Option<OffsetDateTime>, field: &str, given: &Given<'_>) -> Checked<OffsetDateTime> {
    let until = timestamp(field, given)?.as_datetime();
    if since.is_some_and(|since| until <= since) {
        return violation(field, "not_after_since", "must be later than the beginning of the span");
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
    use domain::AddressPolicy;
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;

    const RULES: Rules = Rules { name_chars: 0, url_chars: 0, address_policy: AddressPolicy::allowing(Vec::new()) };

    fn read(body: &Value) -> Checked<RecoveryRequest> {
        let members = body.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value.clone()));
        RecoveryRequest::read(Members(members.collect()), &RULES)
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
