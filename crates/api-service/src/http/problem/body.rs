//! Problem details (RFC 9457).

use serde::Serialize;

use super::ApiError;
use crate::http::violation::{MAX_LISTED_VIOLATIONS, Violation};

/// The type is `about:blank`: only the status describes it, and its phrase is the title. `code` is more precise.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a [Violation]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_errors: Option<usize>,
    request_id: &'a str,
}

/// The body of an error.
pub(crate) fn text(error: &ApiError, request_id: &str) -> String {
    let (status, code) = error.kind();
    let violations = error.violations();
    let more = violations.map_or(0, |violations| violations.len().saturating_sub(MAX_LISTED_VIOLATIONS));
    let problem = Problem {
        kind: "about:blank",
        title: status.canonical_reason().unwrap_or_default(),
        status: status.as_u16(),
        code,
        detail: error.to_string(),
        errors: violations.map(|violations| &violations[..violations.len().min(MAX_LISTED_VIOLATIONS)]),
        more_errors: (more > 0).then_some(more),
        request_id,
    };
    // Strings and numbers can always be serialized.
    serde_json::to_string(&problem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ledger::LedgerError;
    use serde_json::{Value, json};

    use super::*;

    fn rendered(error: &ApiError) -> Value {
        serde_json::from_str(&text(error, "r-1")).unwrap()
    }

    #[test]
    fn of_many_faults_the_first_are_listed_and_the_others_counted() {
        for (count, more) in [
            (MAX_LISTED_VIOLATIONS, Value::Null),
            (MAX_LISTED_VIOLATIONS + 1, json!(1)),
            (30_000, json!(30_000 - MAX_LISTED_VIOLATIONS)),
        ] {
            let violations =
                (0..count).map(|index| Violation::new(format!("events[{index}]"), "wrong_type", "is wrong"));
            let problem = rendered(&ApiError::Fields(violations.collect()));
            assert_eq!(problem["errors"].as_array().unwrap().len(), MAX_LISTED_VIOLATIONS);
            assert_eq!((&problem["errors"][19]["field"], &problem["more_errors"]), (&json!("events[19]"), &more));
        }
    }

    #[test]
    fn a_change_that_is_not_confirmed_may_have_been_made_and_one_without_a_connection_was_not() {
        let timeout = || LedgerError::Timeout(Duration::from_secs(1));
        let not_had = || LedgerError::Unavailable("no connection in time".into());
        for (error, may_be_made) in [
            (ApiError::of_change(timeout()), true),
            (ApiError::of_change(not_had()), false),
            (ApiError::from(timeout()), false),
        ] {
            let problem = rendered(&error);
            let code = if may_be_made { "unconfirmed" } else { "unavailable" };
            assert_eq!((&problem["status"], &problem["code"]), (&json!(503), &json!(code)));
            assert_eq!(error.header().is_none(), may_be_made, "Retry-After asks for a repetition");
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(detail.contains("may have been made"), may_be_made, "{detail}");
            assert_eq!(detail.contains("try again in a few seconds"), !may_be_made, "{detail}");
        }
    }

    #[test]
    fn what_is_unexpected_tells_the_client_nothing() {
        let later = LedgerError::Unreadable { column: "webhooks.events" };
        for (error, status, code, secret) in [
            (LedgerError::Row { sqlstate: "22P05".to_owned() }, 500, "internal_error", "22P05"),
            (later, 503, "unavailable", "webhooks.events"),
            (LedgerError::Timeout(Duration::from_secs(30)), 503, "unavailable", "30"),
        ] {
            let problem = rendered(&error.into());
            assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)));
            assert!(!problem.to_string().contains(secret), "{problem}");
        }
    }
}
