//! The values of the examples.

use domain::{EventType, OutcomeClass, catalogue};
use ledger::Absence;
use serde_json::{Value, json};

use crate::calls::events::explanation;

pub(super) const WEBHOOK: &str = "0199a3c2-7d54-7b1e-9c3a-5f0d2e8b4a11";
const OTHER_WEBHOOK: &str = "0199a3c2-9e10-7c55-8d21-6b3f4e5a7c22";
pub(super) const DELIVERY: &str = "019ca8bb-b63b-81e0-9e67-8295475fb864";
pub(super) const RECOVERY: &str = "019cab10-22f0-7c44-8f4e-0a6d1b9e7c55";
pub(super) const NOTICE: &str = "019ca8bb-b7c1-7d02-a6b3-71c4e8d95a20";
pub(super) const REQUEST: &str = "019cab12-9e0d-7a31-b1c2-3d4e5f607182";
pub(super) const EVENT: &str = "0192f0c1-0000-7000-8000-000000000001";
const TENANT: &str = "5b0e0000-0000-4000-8000-000000000001";
const EVENT_TYPE: EventType = EventType::QuoteClosed;
pub(super) const URL: &str = "https://erp.example.com/hooks/quotes";

pub(super) fn webhook() -> Value {
    json!({
        "id": WEBHOOK, "name": "ERP: quotes", "url": URL,
        "events": [EVENT_TYPE, EventType::QuoteAccepted], "is_active": true,
        "created_at": "2026-03-01T09:00:00.123456Z", "updated_at": "2026-03-01T09:00:00.123456Z",
        "last_success_at": "2026-03-01T09:30:00.489012Z", "failure_count": 0, "failing_since": null,
        "last_failure": {"at": "2026-03-01T09:12:41.002188Z", "error": "the receiver answered 503 Service Unavailable"},
        "next_attempt_at": null, "deliveries": {"waiting": 0, "dropped": 2, "skipped": 0}, "is_cancelling": false, "is_queued": false,
    })
}

pub(super) fn new_webhook() -> Value {
    json!({"name": "ERP: quotes", "url": URL, "events": [EVENT_TYPE, EventType::QuoteAccepted]})
}

pub(super) fn created() -> Value {
    let mut created = webhook();
    for none in ["last_success_at", "last_failure"] {
        created[none] = Value::Null;
    }
    created["deliveries"]["dropped"] = json!(0);
    created["signing_secret"] = json!("whsec_6f1c0e9d8b7a695847362514031f2e3d4c5b6a798807162534435261708f9eab");
    created
}

pub(super) fn delivery() -> Value {
    json!({
        "id": DELIVERY, "webhook_id": WEBHOOK, "event_id": EVENT, "event_type": EVENT_TYPE, "is_test": false,
        "state": "retrying", "attempts": 1, "created_at": "2026-03-01T09:30:00.131842Z",
        "occurred_at": "2026-03-01T09:30:00.123000Z", "first_failed_at": "2026-03-01T09:30:00.489012Z",
        "next_attempt_at": "2026-03-01T09:31:00.489012Z", "is_body_expired": false,
    })
}

/// A delivery whose run has just begun.
pub(super) fn accepted() -> Value {
    let mut accepted = delivery();
    accepted["state"] = json!("pending");
    accepted["first_failed_at"] = Value::Null;
    accepted
}

pub(super) fn detail() -> Value {
    let mut detail = delivery();
    detail["request"] = json!({
        "method": "POST",
        "headers": {"Content-Type": "application/json", "X-Service-Webhook-Id": DELIVERY, "X-Service-Event": EVENT_TYPE},
        "body": format!(r#"{{"event_type":"{EVENT_TYPE}","tenant_id":"{TENANT}","timestamp":"2026-03-01T09:30:00.123456Z","data":{{"quote_number":"Q-2026-0117"}}}}"#),
    });
    detail["attempt_log"] = json!([{
        "attempt": 1, "url": URL, "started_at": "2026-03-01T09:30:00.201377Z", "duration_ms": 288,
        "outcome": "status", "status": 503, "error": "the receiver answered 503 Service Unavailable",
        "response_body": "maintenance until 09:45",
        "signed_at": "2026-03-01T09:30:00.000000Z",
    }]);
    detail
}

pub(super) fn recovery() -> Value {
    json!({"id": RECOVERY, "since": "2026-03-01T00:00:00.000000Z", "until": null, "states": ["dropped"],
           "state": "running", "resent": 117, "created_at": "2026-03-01T20:15:00.500000Z", "finished_at": null})
}

pub(super) fn recoverable() -> Value {
    json!({"count": 1742, "is_exact": true})
}

/// What became of an event at a webhook that got it, and at one that did not.
pub(super) fn events() -> Value {
    let reason = Absence::NotSubscribed;
    json!({
        "data": [{
            "event_id": EVENT, "event_type": EVENT_TYPE,
            "occurred_at": "2026-03-01T09:30:00.123000Z", "received_at": "2026-03-01T09:30:00.131842Z",
            "webhooks": [
                {
                    "webhook_id": WEBHOOK, "name": "ERP: quotes", "is_deleted": false,
                    "delivery": {
                        "id": DELIVERY, "state": "retrying", "attempts": 1,
                        "next_attempt_at": "2026-03-01T09:31:00.489012Z", "created_at": "2026-03-01T09:30:00.131842Z",
                        "is_test": false,
                    },
                    "reason": null, "explanation": null,
                },
                {
                    "webhook_id": OTHER_WEBHOOK, "name": "Shop: returns", "is_deleted": false, "delivery": null,
                    "reason": reason.as_str(), "explanation": explanation(reason),
                },
            ],
        }],
        "is_complete": true,
    })
}

pub(super) fn stats() -> Value {
    let outcomes = OutcomeClass::ALL.map(|class| (class.as_str().to_owned(), json!(0)));
    let mut counts = json!({
        "attempts": 1204, "outcomes": Value::Object(outcomes.into_iter().collect()), "succeeded": 1201, "dropped": 0,
        "duration_ms": {"p50": 41, "p95": 187},
    });
    counts["outcomes"]["success"] = json!(1201);
    counts["outcomes"]["timeout"] = json!(3);
    let mut step = json!({"from": "2026-03-01T09:00:00.000000Z"});
    for (name, count) in counts.as_object().into_iter().flatten() {
        step[name] = count.clone();
    }
    json!({"from": "2026-03-01T09:00:00.000000Z", "to": "2026-03-01T10:00:00.000000Z", "step": "hour", "total": counts, "data": [step]})
}

pub(super) fn notice() -> Value {
    let request = json!({
        "method": "POST", "path": format!("/api/v1/webhooks/{WEBHOOK}/recover/"),
        "body": {"since": "2026-02-28T20:30:00.123000Z", "states": ["dropped"]},
    });
    json!({
        "notice_id": NOTICE, "type": "webhook.recovered", "created_at": "2026-03-01T09:30:00.513377Z",
        "tenant_id": TENANT, "webhook_id": WEBHOOK, "webhook_name": "ERP: quotes",
        "summary": "The webhook \"ERP: quotes\" works again. 2 deliveries were dropped meanwhile. A recovery sends them again.",
        "details": {"failing_since": "2026-02-28T20:30:00.489012Z", "succeeded_at": "2026-03-01T09:30:00.489012Z",
                    "dropped": 2, "recover": request},
    })
}

pub(super) fn history() -> Value {
    json!({
        "id": NOTICE, "created_at": "2026-03-01T09:30:00.513377Z", "user": "maria", "action": "changed",
        "details": {"url": {"from": URL, "to": "https://erp2.example.com/hooks"}},
    })
}

pub(super) fn event_types() -> Value {
    let of = |event_type: EventType| {
        json!({
            "event_type": event_type, "description": catalogue::description(event_type),
            "schema": schema(event_type), "sample": sample(event_type),
        })
    };
    json!({"data": EventType::ALL.map(of)})
}

/// The schema of an event type's data.
pub(super) fn schema(event_type: EventType) -> Value {
    parsed(catalogue::schema(event_type))
}

/// A sample of an event type's data.
pub(super) fn sample(event_type: EventType) -> Value {
    parsed(catalogue::sample(event_type))
}

/// The catalogue's tests show that its texts are JSON.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// A cursor after this entry.
pub(super) fn cursor(id: &str) -> Value {
    json!(format!("{}5f0d2e8b", id.replace('-', "")))
}

pub(super) fn page(entry: &Value, next_cursor: &Value) -> Value {
    json!({"data": [entry], "next_cursor": next_cursor})
}
