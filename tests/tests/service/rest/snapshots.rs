//! Snapshots of answers. What differs from run to run is hidden, and its shape is checked.

use std::{collections::BTreeSet, ffi::OsString, fs};

use end_to_end::{api::Answer, servers::repository};
use insta::Settings;
use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::openapi::Contract;

/// Headers that may differ from run to run: of the connection, not of the answer.
const OMITTED: [&str; 3] = ["connection", "content-length", "date"];

/// The snapshots of one folder.
pub(crate) struct Snapshots {
    folder: &'static str,
    pub(crate) contract: Contract,
    compared: BTreeSet<String>,
}

impl Snapshots {
    pub(crate) fn of(folder: &'static str) -> Self {
        Self { folder, contract: Contract::committed(), compared: BTreeSet::new() }
    }

    /// Compares the answer of an operation with its snapshot, and with its description.
    pub(crate) fn compare(&mut self, operation: &str, answer: &Answer) {
        let is_json = answer.header("content-type").is_some_and(|media_type| media_type.ends_with("json"));
        let body = if is_json { answer.json() } else { json!(answer.text) };
        self.compare_with(operation, answer, &body);
    }

    /// The same with something else in the body's place.
    pub(crate) fn compare_with(&mut self, operation: &str, answer: &Answer, body: &Value) {
        self.contract.check(operation, answer.status, answer);
        self.compare_as(operation, answer, body);
    }

    /// Compares an answer's status and headers, and this body, with the snapshot of this name.
    pub(crate) fn compare_as(&mut self, name: &str, answer: &Answer, body: &Value) {
        let mut headers: Map<_, _> = answer.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        assert_eq!(headers.len(), answer.headers.len(), "each header is sent once: {:?}", answer.headers);
        headers.retain(|name, _| !OMITTED.contains(&name.as_str()));
        let mut answer = json!({"status": answer.status, "headers": headers, "body": body});
        hide("", &mut answer);
        let mut settings = Settings::new();
        settings.set_sort_maps(true);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_snapshot_path(format!("snapshots/{}", self.folder));
        settings.bind(|| insta::assert_json_snapshot!(name, answer));
        assert!(self.compared.insert(name.to_owned()), "{name} has one snapshot");
    }

    /// Asserts that an answer was compared for each of these names, and that there is no other snapshot.
    pub(crate) fn assert_of(self, names: &BTreeSet<&str>) {
        assert_eq!(self.compared.iter().map(String::as_str).collect::<BTreeSet<_>>(), *names);
        let folder = repository().join("tests/tests/service/rest/snapshots").join(self.folder);
        let files = fs::read_dir(folder).expect("there are snapshots").map(|file| file.expect("a file").file_name());
        let expected: BTreeSet<_> = self.compared.iter().map(|name| format!("{name}.snap").into()).collect();
        assert_eq!(files.collect::<BTreeSet<OsString>>(), expected);
    }
}

/// Puts a placeholder in the place of what differs from run to run. Another shape fails the test. Null is shown.
fn hide(path: &str, value: &mut Value) {
    match (shape_of(path), value) {
        (_, Value::Null) => {}
        (Some(shape), value) => *value = shape(value).unwrap_or_else(|| panic!("{path} is {value}")).into(),
        (None, Value::Object(members)) => {
            members.iter_mut().for_each(|(name, member)| hide(&format!("{path}.{name}"), member));
        }
        (None, Value::Array(items)) => items.iter_mut().for_each(|item| hide(&format!("{path}[]"), item)),
        (None, _) => {}
    }
}

/// Returns the placeholder of a value that has the shape.
type Shape = fn(&Value) -> Option<String>;

/// The shape of what differs. A list's items are like the answer that shows one alone.
fn shape_of(path: &str) -> Option<Shape> {
    Some(match path.replace(".data[]", "").as_str() {
        ".headers.location" => location,
        ".headers.etag" => |value| {
            let quoted = value.as_str()?.strip_prefix('"')?.strip_suffix('"')?;
            time(&json!(quoted)).map(|time| format!("\"{time}\""))
        },
        ".headers.x-request-id" | ".body.request_id" | ".body.request.headers.X-Service-Webhook-Id" => id,
        ".body.request.headers.X-Service-Event-Id" => id,
        ".body.id" | ".body.webhook_id" | ".body.event_id" => id,
        ".body.notice_id" | ".body.details.recovery_id" | ".body.details.delivery_id" => id,
        ".body.webhooks[].webhook_id" | ".body.webhooks[].delivery.id" => id,
        ".body.received_at" | ".body.webhooks[].delivery.created_at" => time,
        ".body.created_at" | ".body.updated_at" | ".body.last_success_at" | ".body.occurred_at" => time,
        ".body.failing_since"
        | ".body.last_failure.at"
        | ".body.last_attempt.at"
        | ".body.searched_until"
        | ".body.from"
        | ".body.to" => time,
        ".body.first_failed_at" | ".body.next_attempt_at" | ".body.finished_at" => time,
        ".body.attempt_log[].started_at" | ".body.attempt_log[].signed_at" => time,
        ".body.attempt_log[].duration_ms" | ".body.total.duration_ms.p50" | ".body.total.duration_ms.p95" => {
            |value| value.is_u64().then(|| "[milliseconds]".to_owned())
        }
        ".body.url" | ".body.attempt_log[].url" => url,
        ".body.signing_secret" => secret,
        ".body.key" => key,
        ".body.next_cursor" => cursor,
        _ => return None,
    })
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

fn id(value: &Value) -> Option<String> {
    is_id(value.as_str()?).then(|| "[uuid]".to_owned())
}

/// Every time has one width: six digits of the second's fraction.
fn time(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let is_time = text.len() == 27 && text.ends_with('Z') && OffsetDateTime::parse(text, &Rfc3339).is_ok();
    is_time.then(|| "[time]".to_owned())
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn secret(value: &Value) -> Option<String> {
    is_hex(value.as_str()?.strip_prefix("whsec_")?, 64).then(|| "[secret]".to_owned())
}

fn key(value: &Value) -> Option<String> {
    is_hex(value.as_str()?.strip_prefix("wk_")?, 64).then(|| "[key]".to_owned())
}

fn cursor(value: &Value) -> Option<String> {
    is_hex(value.as_str()?, 40).then(|| "[cursor]".to_owned())
}

/// The port of a receiver's URL.
fn url(value: &Value) -> Option<String> {
    let (port, path) = value.as_str()?.strip_prefix("https://localhost:")?.split_once('/')?;
    port.parse::<u16>().ok().map(|_| format!("https://localhost:[port]/{path}"))
}

/// The ids in a path.
fn location(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| text.starts_with('/'))?;
    let segments: Vec<_> = text.split('/').map(|segment| if is_id(segment) { "[uuid]" } else { segment }).collect();
    Some(segments.join("/"))
}
