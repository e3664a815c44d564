//! A webhook's own headers: the field of a body or a form, and their change. No value is in a message.

use domain::{HeaderChange, HeaderFault, MAX_HEADERS, ReceiverHeaders, WebhookId, is_same_origin};
use ledger::{NewHeaders, SecretKeys, WebhookHeaders};
use serde_json::Value;

use crate::http::{
    ApiError, Checked, Given, Need, Violation,
    fields::{string, violation, wrong_type},
};

/// The field. Nobody is shown its values, so a form does not know what they were.
pub(crate) const FIELD: &str = "headers";

/// Reads the headers of a new webhook.
pub(super) fn registration(field: &str, given: &Given<'_>) -> Checked<ReceiverHeaders> {
    let change = read(field, given, Need::Required)?;
    ReceiverHeaders::default().changed(&change).or_else(|fault| faulty(field, fault))
}

/// Reads a change of headers. Null removes a header, and so does a line of a form without a value.
pub(super) fn change(field: &str, given: &Given<'_>) -> Checked<HeaderChange> {
    read(field, given, Need::Optional)
}

/// Reads headers. `need`: whether each has to have a value.
fn read(field: &str, given: &Given<'_>, need: Need) -> Checked<HeaderChange> {
    let members = match given {
        Given::Json(Value::Object(members)) => {
            members.iter().map(|(name, value)| (name.as_str(), value_of(field, name, value, need))).collect()
        }
        Given::Json(value) => return wrong_type(field, "an object of names and values", value),
        Given::Form(texts) => lines(field, texts, need)?,
    };
    // A change may remove the maximum of headers, and set as many.
    if members.len() > 2 * MAX_HEADERS {
        return faulty(field, HeaderFault::TooMany);
    }
    let (mut change, mut violations) = (HeaderChange::default(), Vec::new());
    for (name, value) in members {
        let added = value.and_then(|value| change.add(name, value).or_else(|fault| faulty(&path(field, name), fault)));
        violations.extend(added.err().into_iter().flatten());
    }
    if violations.is_empty() { Ok(change) } else { Err(violations) }
}

fn value_of<'a>(field: &str, name: &str, value: &'a Value, need: Need) -> Checked<Option<&'a str>> {
    match value {
        Value::Null if need == Need::Optional => Ok(None),
        value => string(&path(field, name), &Given::Json(value)).map(Some),
    }
}

type Member<'a> = (&'a str, Checked<Option<&'a str>>);

/// The headers of a form: a line for each, with its name, a colon and its value.
fn lines<'a>(field: &str, texts: &[&'a str], need: Need) -> Checked<Vec<Member<'a>>> {
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    let member = |line: &'a str| {
        let (name, value) = line.split_once(':')?;
        let value = Some(value.trim()).filter(|value| need == Need::Required || !value.is_empty());
        Some((name.trim(), Ok(value)))
    };
    let members: Option<_> = lines.map(member).collect();
    members.map_or_else(|| violation(field, "invalid_header", "must be lines of a name, a colon and a value"), Ok)
}

fn path(field: &str, name: &str) -> String {
    format!("{field}.{name}")
}

fn faulty<T>(field: &str, fault: HeaderFault) -> Checked<T> {
    violation(field, fault.code(), fault)
}

/// Returns the headers of a webhook after a change of its URL and its headers, sealed; `None` if they stay as they are.
pub(super) fn changed(
    keys: &SecretKeys,
    id: WebhookId,
    stored: &WebhookHeaders,
    (url, new_url): (&str, &str),
    change: &HeaderChange,
) -> Result<Option<NewHeaders>, ApiError> {
    let kept: Vec<_> = stored.names.iter().filter(|name| !change.names_header(name)).collect();
    if !kept.is_empty() && !is_same_origin(url, new_url) {
        return Err(required(&kept, "the URL leads to another scheme, host or port"));
    }
    let is_removed = kept.len() < stored.names.len();
    if change.set().is_empty() && !is_removed {
        return Ok(None);
    }
    let opened = match kept.is_empty() {
        true => ReceiverHeaders::default(),
        false => keys.open_headers(id, &stored.sealed).map_err(|error| {
            tracing::error!(webhook = %id, %error, "secrets.keys (WEBHOOKS__SECRETS__KEYS): a webhook's headers do not open");
            required(&kept, "the service cannot open its value")
        })?,
    };
    let headers = opened.changed(change).map_err(|fault| ApiError::field(FIELD, fault.code(), fault))?;
    let sealed =
        keys.seal_headers(id, &headers).map_err(|_| ApiError::unexpected("the headers could not be sealed"))?;
    let set = change.set().into_iter().map(str::to_owned).collect();
    Ok(Some(NewHeaders { headers: WebhookHeaders { names: headers.names(), sealed }, set }))
}

/// The error of a change that would keep these headers, and cannot.
fn required(kept: &[&String], why: &str) -> ApiError {
    let message = format!("must be given again, or removed: {why}");
    let violation = |name: &&String| Violation::new(path(FIELD, name), "headers_required", &message);
    ApiError::HeadersRequired(kept.iter().map(violation).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(letters: &str) -> SecretKeys {
        let key = |letter: char| format!("{letter}:{}", hex::encode([letter as u8; 32]));
        letters.chars().map(key).collect::<Vec<_>>().join(",").parse().unwrap()
    }

    fn id() -> WebhookId {
        uuid::Uuid::from_u128(1).into()
    }

    fn violations<T: std::fmt::Debug>(checked: Checked<T>) -> Vec<(String, &'static str)> {
        checked.unwrap_err().into_iter().map(|violation| (violation.field, violation.code)).collect()
    }

    fn changing(members: &Value) -> HeaderChange {
        change(FIELD, &Given::Json(members)).unwrap()
    }

    fn stored(letters: &str, members: &Value) -> WebhookHeaders {
        let headers = registration(FIELD, &Given::Json(members)).unwrap();
        WebhookHeaders { names: headers.names(), sealed: keys(letters).seal_headers(id(), &headers).unwrap() }
    }

    #[test]
    fn each_fault_is_named_with_its_header_and_without_a_value() {
        for (members, expected) in [
            (json!([]), vec![("headers", "wrong_type")]),
            (json!({"X-A": 1, "X-B": null}), vec![("headers.X-A", "wrong_type"), ("headers.X-B", "wrong_type")]),
            (json!({"X-A": "a", "x-a": "a"}), vec![("headers.x-a", "repeated_header")]),
            (
                json!({"": "a", "a b": "a"}),
                vec![("headers.", "invalid_header_name"), ("headers.a b", "invalid_header_name")],
            ),
            (
                json!({"Host": "a", "X-A": "hid\u{e9}"}),
                vec![("headers.Host", "reserved_header"), ("headers.X-A", "invalid_header_value")],
            ),
            (json!({"X-A": ""}), vec![("headers.X-A", "blank")]),
        ] {
            let found = registration(FIELD, &Given::Json(&members));
            assert!(!format!("{found:?}").contains("hid"), "{found:?}");
            let expected: Vec<_> = expected.into_iter().map(|(field, code)| (field.to_owned(), code)).collect();
            assert_eq!(violations(found), expected, "{members}");
        }
        let many = |count: usize| Value::Object((0..count).map(|n| (format!("X-{n}"), json!("a"))).collect());
        let too_many = [("headers".to_owned(), "too_many_headers")];
        assert_eq!(violations(registration(FIELD, &Given::Json(&many(17)))), too_many);
        assert_eq!(violations(change(FIELD, &Given::Json(&many(33)))), too_many);
        assert_eq!(registration(FIELD, &Given::Json(&many(16))).unwrap().names().len(), 16);
    }

    #[test]
    fn a_form_has_a_line_for_each_header() {
        let texts = vec!["X-Gone:", " Authorization :Bearer a:b \n\nX-B: b"];
        let read = change(FIELD, &Given::Form(texts.clone())).unwrap();
        assert!(read.set() == ["Authorization", "X-B"] && read.names_header("x-gone"));
        assert_eq!(violations(registration(FIELD, &Given::Form(texts))), [("headers.X-Gone".to_owned(), "blank")]);
        let found = change(FIELD, &Given::Form(vec!["hidden"]));
        assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
        assert_eq!(violations(found), [("headers".to_owned(), "invalid_header")]);
        assert!(change(FIELD, &Given::Form(vec![" \n"])).unwrap().is_empty());
    }

    #[test]
    fn another_origin_needs_every_header_again() {
        let before = stored("a", &json!({"X-A": "1", "X-B": "2"}));
        let of = |url: &str, members: &Value| {
            changed(&keys("a"), id(), &before, ("https://a.example/x", url), &changing(members))
        };
        for same in ["https://a.example/y?z", "https://A.example:443"] {
            assert_eq!(of(same, &json!({})).unwrap(), None, "{same}");
        }
        for other in ["https://b.example/x", "https://a.example:8443/x", "http://a.example/x"] {
            for (members, missing) in [
                (json!({}), vec!["headers.X-A", "headers.X-B"]),
                (json!({"x-a": "3", "X-C": "4"}), vec!["headers.X-B"]),
                (json!({"x-a": "3", "X-B": null}), vec![]),
            ] {
                let found = match of(other, &members) {
                    Err(ApiError::HeadersRequired(violations)) => violations.into_iter().map(|one| one.field).collect(),
                    done => done.map(|_| Vec::new()).unwrap(),
                };
                assert_eq!(found, missing, "{other} {members}");
            }
        }
    }

    #[test]
    fn headers_are_kept_set_and_removed_and_sealed_anew() {
        let before = stored("a", &json!({"X-A": "1", "X-B": "2"}));
        let url = ("https://a.example/", "https://a.example/");
        let after = |letters: &str, members: &Value| changed(&keys(letters), id(), &before, url, &changing(members));
        assert_eq!(after("a", &json!({})).unwrap(), None);
        assert_eq!(after("a", &json!({"X-C": null})).unwrap(), None);
        let new = after("ba", &json!({"x-b": "3", "X-C": "4"})).unwrap().unwrap();
        assert_eq!(
            (&new.headers.names[..], &new.set[..]),
            (&["X-A", "x-b", "X-C"].map(str::to_owned)[..], &["x-b", "X-C"].map(str::to_owned)[..])
        );
        let opened = keys("b").open_headers(id(), &new.headers.sealed).unwrap();
        assert_eq!(opened.iter().collect::<Vec<_>>(), [("X-A", "1"), ("x-b", "3"), ("X-C", "4")]);
        let none = after("a", &json!({"X-A": null, "X-B": null})).unwrap().unwrap();
        assert_eq!(none.headers, WebhookHeaders::default());
        let long = "v".repeat(1024);
        let many = after("a", &json!({"X-C": long, "X-D": long, "X-E": long, "X-F": long}));
        assert!(matches!(many, Err(ApiError::Fields(violations)) if violations[0].code == "too_long"));
    }

    #[test]
    fn headers_that_do_not_open_have_to_be_given_again() {
        let before = stored("a", &json!({"X-A": "1", "X-B": "2"}));
        let url = ("https://a.example/", "https://a.example/");
        let after = |members: &Value| changed(&keys("b"), id(), &before, url, &changing(members));
        let refused = after(&json!({"X-B": "3"}));
        assert!(
            matches!(&refused, Err(ApiError::HeadersRequired(left)) if left[0].field == "headers.X-A"),
            "{refused:?}"
        );
        assert_eq!(after(&json!({"X-B": "3", "X-A": null})).unwrap().unwrap().headers.names, ["X-B"]);
        assert_eq!(after(&json!({})).unwrap(), None);
    }
}
