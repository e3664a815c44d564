//! Snapshots of answers. What differs from run to run is hidden, and its shape is checked.

use std::{collections::BTreeSet, ffi::OsString, fs};

use end_to_end::{api::Answer, servers::repository};
use insta::{
    Settings,
    internals::{Content, ContentPath},
};
use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

/// Headers that may differ from run to run: of the connection, not of the answer.
const OMITTED: [&str; 3] = ["connection", "content-length", "date"];

/// The committed description of the API.
pub(crate) fn described() -> Value {
    let file = repository().join("proto-schemas/openapi.json");
    serde_json::from_str(&fs::read_to_string(file).expect("it is committed")).expect("it is JSON")
}

/// The snapshots of one folder.
pub(crate) struct Snapshots {
    folder: &'static str,
    compared: BTreeSet<String>,
}

impl Snapshots {
    pub(crate) const fn of(folder: &'static str) -> Self {
        Self { folder, compared: BTreeSet::new() }
    }

    /// Compares an answer's status, headers and body with the snapshot of this name.
    pub(crate) fn compare(&mut self, name: &str, answer: &Answer) {
        let is_json = answer.header("content-type").is_some_and(|media_type| media_type.ends_with("json"));
        let body = if is_json { answer.json() } else { json!(answer.text) };
        self.compare_with(name, answer, &body);
    }

    /// The same with something else in the body's place.
    pub(crate) fn compare_with(&mut self, name: &str, answer: &Answer, body: &Value) {
        let headers = answer.headers.iter().filter(|(name, _)| !OMITTED.contains(&name.as_str()));
        let headers: Map<_, _> = headers.map(|(name, value)| (name.clone(), json!(value))).collect();
        let answer = json!({"status": answer.status, "headers": headers, "body": body});
        let mut settings = redactions();
        settings.set_snapshot_path(format!("snapshots/{}", self.folder));
        settings.bind(|| insta::assert_json_snapshot!(name, answer));
        assert!(self.compared.insert(name.to_owned()), "{name} has one snapshot");
    }

    /// Asserts that an answer was compared for each of these names, and that there is no other snapshot.
    pub(crate) fn are_of<'n>(self, names: impl Iterator<Item = &'n Value>) {
        assert_eq!(self.compared, names.map(|name| name.as_str().expect("a name").to_owned()).collect());
        let folder = repository().join("tests/tests/rest/snapshots").join(self.folder);
        let files = fs::read_dir(folder).expect("there are snapshots").map(|file| file.expect("a file").file_name());
        let expected: BTreeSet<_> = self.compared.iter().map(|name| format!("{name}.snap").into()).collect();
        assert_eq!(files.collect::<BTreeSet<OsString>>(), expected);
    }
}

/// Hides what differs. A value of another shape fails the test. Null is shown.
fn redactions() -> Settings {
    let mut settings = Settings::new();
    settings.set_sort_maps(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut hide = |selector: &str, shape: fn(&str) -> Option<String>| {
        settings.add_dynamic_redaction(selector, move |value, path| hidden(value, &path, shape));
    };
    for name in ["id", "webhook_id", "event_id"] {
        hide(&format!(".body.{name}, .body.data[].{name}"), id);
    }
    hide(r#".headers["x-request-id"], .body.request_id, .body.request.headers["X-Service-Webhook-Id"]"#, id);
    for name in ["created_at", "updated_at", "last_success_at", "occurred_at", "first_failed_at", "next_attempt_at"] {
        hide(&format!(".body.{name}, .body.data[].{name}"), time);
    }
    hide(".body.finished_at, .body.attempt_log[].started_at, .body.attempt_log[].signed_at", time);
    hide(".body.url, .body.data[].url, .body.attempt_log[].url", url);
    hide(".headers.location", location);
    hide(".body.signing_secret", secret);
    hide(".body.next_cursor", cursor);
    settings.add_dynamic_redaction(".body.attempt_log[].duration_ms", |value, path| {
        value.as_u64().map_or_else(|| panic!("{path} is {value:?}"), |_| "[milliseconds]")
    });
    settings
}

fn hidden(value: Content, path: &ContentPath<'_>, shape: fn(&str) -> Option<String>) -> Content {
    if value.is_nil() {
        return value;
    }
    let shape = value.as_str().and_then(shape);
    shape.unwrap_or_else(|| panic!("{path} is {value:?}")).into()
}

fn id(text: &str) -> Option<String> {
    (text.len() == 36 && Uuid::try_parse(text).is_ok()).then(|| "[uuid]".to_owned())
}

fn time(text: &str) -> Option<String> {
    (text.ends_with('Z') && OffsetDateTime::parse(text, &Rfc3339).is_ok()).then(|| "[time]".to_owned())
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn secret(text: &str) -> Option<String> {
    is_hex(text.strip_prefix("whsec_")?, 64).then(|| "[secret]".to_owned())
}

fn cursor(text: &str) -> Option<String> {
    is_hex(text, 32).then(|| "[cursor]".to_owned())
}

/// The port of a receiver's URL.
fn url(text: &str) -> Option<String> {
    let (port, path) = text.strip_prefix("https://localhost:")?.split_once('/')?;
    port.parse::<u16>().ok().map(|_| format!("https://localhost:[port]/{path}"))
}

/// The ids in a path.
fn location(text: &str) -> Option<String> {
    let segments: Vec<_> = text.split('/').map(|segment| id(segment).unwrap_or_else(|| segment.to_owned())).collect();
    text.starts_with('/').then(|| segments.join("/"))
}
