use serde_json::json;
use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);

fn good() -> Value {
    json!({
        "tenant_id": "5b0e0000-0000-4000-8000-000000000001",
        "user_id": "u-7",
        "role": "admin",
        "expires_at": "2026-03-01T10:31:30+01:00",
        "theme": "dark",
    })
}

fn answer(status: u16, body: &impl ToString) -> InternalAnswer {
    InternalAnswer { status, headers: Default::default(), body: body.to_string().into() }
}

#[test]
fn a_session_is_read_with_the_time_that_it_has_left() {
    let (session, left) = read(&answer(200, &good()), NOW).unwrap().unwrap();
    assert_eq!(session.tenant.as_uuid(), Uuid::from_u128(0x5b0e_0000_0000_4000_8000_0000_0000_0001));
    assert_eq!((session.user.as_str(), session.role.as_str()), ("u-7", "admin"));
    assert_eq!(left, Duration::from_secs(90));
}

#[test]
fn an_expired_session_and_a_refusal_are_no_session() {
    for later in [90, 91, 1_000_000] {
        assert_eq!(read(&answer(200, &good()), NOW + Duration::from_secs(later)).unwrap(), None);
    }
    for status in [401, 403, 404] {
        assert_eq!(read(&answer(status, &good()), NOW).unwrap(), None);
    }
}

#[test]
fn any_other_status_tells_nothing() {
    for status in [201, 204, 302, 400, 402, 418, 429, 500, 503] {
        let error = read(&answer(status, &good()), NOW).unwrap_err();
        assert_eq!(error.to_string(), format!("the business application answered {status}"));
    }
}

#[test]
fn a_malformed_answer_is_named_by_its_fault_and_never_quoted() {
    for body in ["", "<html>hunter2</html>", "null", "[]", "\"hunter2\"", "{\"tenant_id\":"] {
        let error = read(&answer(200, &body), NOW).unwrap_err();
        assert!(error.to_string().ends_with(": it is not a JSON object"), "{body}");
    }
    for (name, wrong) in [
        ("tenant_id", "tenant_id is not a UUID"),
        ("user_id", "user_id is not a string"),
        ("role", "role is not a string"),
        ("expires_at", "expires_at is not a time of RFC 3339"),
    ] {
        let mut bodies = [good(), good(), good()];
        bodies[0].as_object_mut().unwrap().remove(name);
        bodies[1][name] = json!(null);
        bodies[2][name] = json!(["hunter2"]);
        for body in bodies {
            let error = read(&answer(200, &body), NOW).unwrap_err();
            let said = format!("the business application's answer cannot be used: {wrong}");
            assert_eq!(error.to_string(), said, "{body}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }
    for (name, value) in [("tenant_id", "tenant"), ("expires_at", "tomorrow"), ("expires_at", "2026-03-01T10:31:30")] {
        let mut body = good();
        body[name] = json!(value);
        assert!(matches!(read(&answer(200, &body), NOW), Err(IntrospectionError::Malformed(_))), "{value}");
    }
}

#[test]
fn what_is_kept_of_an_answer_is_short() {
    for name in ["user_id", "role"] {
        let mut body = good();
        body[name] = json!("\u{e9}".repeat(255));
        assert!(read(&answer(200, &body), NOW).is_ok());
        body[name] = json!("\u{e9}".repeat(256));
        let error = read(&answer(200, &body), NOW).unwrap_err();
        let said = format!("the business application's answer cannot be used: {name} is longer than 255 characters");
        assert_eq!(error.to_string(), said);
    }
}
