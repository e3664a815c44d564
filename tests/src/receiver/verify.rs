//! Checks a delivery against the specification, without our crates.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ring::hmac;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::Received;

/// How far the signature's time may be from the receiver's clock (specification, section 5.2.5), in seconds.
const TOLERANCE_SECONDS: i64 = 300;

/// Checks a delivery as a receiver would that knows only the specification and the webhook's secret. The receiver's
/// clock is the time of arrival.
///
/// # Errors
/// The check that failed, in words.
pub fn verify(received: &Received, secret: &str) -> Result<(), String> {
    ensure(received.method == "POST", || format!("the method is {}", received.method))?;
    let content_type = only_header(received, "content-type")?;
    ensure(content_type == "application/json", || format!("Content-Type is {content_type:?}"))?;
    let id = only_header(received, "x-service-webhook-id")?;
    ensure(is_uuid(id), || format!("X-Service-Webhook-Id {id:?} is not a UUID"))?;
    verify_signature(received, secret)?;
    if received.header("webhook-signature").is_some() {
        verify_standard(received, secret, id)?;
    }
    verify_envelope(&received.body, only_header(received, "x-service-event")?)
}

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation()) }
}

fn is_uuid(text: &str) -> bool {
    // The length counts: the parser also takes forms without hyphens or with braces.
    text.len() == 36 && uuid::Uuid::parse_str(text).is_ok()
}

fn only_header<'r>(received: &'r Received, name: &str) -> Result<&'r str, String> {
    let count = received.headers.iter().filter(|(have, _)| have == name).count();
    received.header(name).filter(|_| count == 1).ok_or_else(|| format!("{name} is there {count} times, not once"))
}

fn verify_signature(received: &Received, secret: &str) -> Result<(), String> {
    let header = only_header(received, "x-service-signature")?;
    let parts = header.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
    let (seconds, digits) = parts.ok_or_else(|| format!("X-Service-Signature {header:?} is not t=…,v1=…"))?;
    let t: i64 = seconds.parse().map_err(|_| format!("t is {seconds:?}"))?;
    let distance = received.at.unix_timestamp() - t;
    ensure(distance.abs() <= TOLERANCE_SECONDS, || format!("it was signed {distance} s before it arrived"))?;
    let lowercase = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    ensure(lowercase, || format!("v1 is {digits:?}, not 64 lowercase hexadecimal digits"))?;
    let digest = hex::decode(digits).map_err(|error| error.to_string())?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, &received.body, &digest).map_err(|_| "the signature does not match the body".to_owned())
}

/// The three headers of Standard Webhooks 1.0, which sign the id and the time as well.
fn verify_standard(received: &Received, secret: &str, delivery: &str) -> Result<(), String> {
    let id = only_header(received, "webhook-id")?;
    ensure(id == delivery, || format!("webhook-id is {id:?}, X-Service-Webhook-Id {delivery:?}"))?;
    let timestamp = only_header(received, "webhook-timestamp")?;
    let same = only_header(received, "x-service-signature")?.starts_with(&format!("t={timestamp},"));
    ensure(same, || format!("webhook-timestamp is {timestamp}, which is not t"))?;
    let signature = only_header(received, "webhook-signature")?;
    let digest = signature.strip_prefix("v1,").and_then(|digest| BASE64.decode(digest).ok());
    let digest = digest.ok_or_else(|| format!("webhook-signature {signature:?} is not v1,<base64>"))?;
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).map_err(|error| error.to_string())?;
    let content = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &received.body].concat();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &content, &digest)
        .map_err(|_| "webhook-signature does not match".to_owned())
}

fn verify_envelope(body: &[u8], event: &str) -> Result<(), String> {
    let envelope: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let members = envelope.as_object().ok_or("the body is not an object")?;
    let mut names: Vec<_> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    ensure(names == ["data", "event_type", "tenant_id", "timestamp"], || format!("the members are {names:?}"))?;
    let text = |name: &str| members[name].as_str().unwrap_or_default();
    ensure(text("event_type") == event, || {
        format!("X-Service-Event is {event:?}, event_type is {}", members["event_type"])
    })?;
    ensure(is_uuid(text("tenant_id")), || format!("tenant_id is {}", members["tenant_id"]))?;
    let utc = text("timestamp").ends_with('Z') && OffsetDateTime::parse(text("timestamp"), &Rfc3339).is_ok();
    ensure(utc, || format!("timestamp is {}", members["timestamp"]))?;
    ensure(members["data"].is_object(), || "data is not an object".to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::receiver::{
        Receiver, TestCa, always,
        client::{ANSWER_TIMEOUT, BODY, ID, SECRET, connect, post},
    };

    #[tokio::test]
    async fn what_is_not_a_delivery_by_the_specification_does_not_verify() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, always(200));
        post(&mut connect(&ca, &receiver).await.unwrap(), ID).await.unwrap();
        let good = receiver.wait_for(1, ANSWER_TIMEOUT).await.remove(0);
        let with_header = |name: &str, value: &str| {
            let mut bad = good.clone();
            bad.headers.retain(|(have, _)| have != name);
            bad.headers.push((name.to_owned(), value.to_owned()));
            verify(&bad, SECRET).unwrap_err()
        };
        let signed = |body: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
            let digest = hex::encode(hmac::sign(&key, body.as_bytes()));
            let header = format!("t={},v1={digest}", good.at.unix_timestamp());
            let mut bad = Received { body: Bytes::from(body.to_owned()), ..good.clone() };
            bad.headers.retain(|(have, _)| have != "x-service-signature");
            bad.headers.push(("x-service-signature".to_owned(), header));
            verify(&bad, SECRET)
        };

        assert_eq!(signed(BODY), Ok(()));
        assert!(with_header("content-type", "application/json; charset=utf-8").contains("Content-Type"));
        assert!(with_header("x-service-webhook-id", "7").contains("not a UUID"));
        assert!(with_header("x-service-event", "quote.accepted").contains("X-Service-Event"));
        assert!(with_header("x-service-signature", "v1=00").contains("not t="));
        let (_, digest) = good.header("X-Service-Signature").unwrap().split_once(",v1=").unwrap();
        let late = good.at.unix_timestamp() - 301;
        assert!(with_header("x-service-signature", &format!("t={late},v1={digest}")).contains("301 s"));
        assert!(with_header("x-service-signature", &format!("t={late},v1={}", &digest[1..])).contains("301 s"));
        assert!(verify(&good, "whsec_other").unwrap_err().contains("does not match"));
        assert!(verify(&Received { method: "PUT".to_owned(), ..good.clone() }, SECRET).unwrap_err().contains("PUT"));
        assert!(signed(&BODY.replace("Z\"", "+00:00\"")).unwrap_err().contains("timestamp"));
        assert!(signed(&BODY.replace("5b0e", "zz0e")).unwrap_err().contains("tenant_id"));
        assert!(signed(&BODY.replace("{}", "[]")).unwrap_err().contains("data"));
        assert!(signed(&BODY.replace("\"data\"", "\"extra\":1,\"data\"")).unwrap_err().contains("extra"));
    }
}
