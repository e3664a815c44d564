//! The calls, in the order in which an administrator meets them.

use actix_web::http::Method;
use domain::EventType;
use ledger::Recoverable;
use serde_json::{Value, json};

use super::{
    call::{Body, Call, Content, Parameter, Success, Tag, reference},
    errors::recovering,
    examples,
};
use crate::{
    problem::ApiError,
    quota,
    request::{DEFAULT_LIMIT, MAX_LIMIT, Need},
};

pub(super) fn all() -> Vec<Call> {
    let mut calls = webhooks();
    calls.extend(changes());
    calls.extend(deliveries());
    calls.extend(recovery());
    calls.extend(insight());
    calls.extend(documentation());
    calls
}

fn call(method: Method, tag: Tag) -> Call {
    Call { method, tag, ..Call::default() }
}

fn webhooks() -> Vec<Call> {
    let page = examples::page(&examples::webhook(), &Value::Null);
    vec![
        Call {
            id: "createWebhook",
            path: "/webhooks/",
            summary: "Register a webhook",
            description: "From now on it is sent the events that it is subscribed to. The answer holds its signing secret, which is shown this once.",
            body: Some(Body {
                need: Need::Required,
                schema: "NewWebhook",
                examples: vec![("quotes", examples::new_webhook())],
            }),
            refusals: vec![|limits| ApiError::TooManyWebhooks(quota::of(limits).webhooks), |limits| {
                ApiError::TooManyDeleted(quota::of(limits).deleted)
            }],
            links: of_webhook("$response.body#/id"),
            success: answer(201, "The webhook is registered.", "CreatedWebhook", examples::created())
                .at("The webhook's path."),
            ..call(Method::POST, Tag::Webhooks)
        },
        Call {
            id: "listWebhooks",
            path: "/webhooks/",
            summary: "List the tenant's webhooks",
            description: "With their health and what waits, oldest first.",
            query: paging(),
            success: answer(200, "A page of the list.", "WebhookList", page),
            ..call(Method::GET, Tag::Webhooks)
        },
        Call {
            id: "readWebhook",
            path: "/webhooks/{id}/",
            summary: "Read a webhook",
            description: "With its health and what waits. A deleted one is not found.",
            success: answer(200, "The webhook.", "Webhook", examples::webhook()),
            ..call(Method::GET, Tag::Webhooks)
        },
    ]
}

fn changes() -> Vec<Call> {
    vec![
        Call {
            id: "changeWebhook",
            path: "/webhooks/{id}/",
            summary: "Change a webhook",
            description: "What is absent stays as it is. `is_active: false` pauses the webhook: deliveries that wait are held, and events that come meanwhile are skipped; `true` lets those that were held go on, as late as they are and not all at once. Skipped ones stay in the log, and a recovery or a resend sends them. A changed URL counts from the next attempt.",
            body: Some(Body {
                need: Need::Required,
                schema: "WebhookChange",
                examples: vec![
                    ("pause", json!({"is_active": false})),
                    ("move", json!({"url": "https://erp2.example.com/hooks"})),
                ],
            }),
            success: answer(200, "The webhook as it is now.", "Webhook", examples::webhook()),
            ..call(Method::PATCH, Tag::Webhooks)
        },
        Call {
            id: "deleteWebhook",
            path: "/webhooks/{id}/",
            summary: "Delete a webhook",
            description: "Its waiting deliveries are cancelled; its log stays readable until retention takes it.",
            success: Success { status: 204, description: "It is deleted.", content: None, location: None },
            ..call(Method::DELETE, Tag::Webhooks)
        },
        Call {
            id: "testWebhook",
            path: "/webhooks/{id}/test/",
            summary: "Send a test",
            description: "Sends a realistic sample of one event type to which the webhook is subscribed: signed, retried and logged like any delivery, and marked with `is_test`. Its attempts change neither the health of the webhook (`last_success_at`, `failure_count`, the failing period) nor its statistics, and cause no notice. The answer comes before the first attempt: read the delivery to see its outcome. If the message broker is unavailable, the test waits, and is sent when the broker is available again.",
            body: Some(Body {
                need: Need::Optional,
                schema: "Test",
                examples: vec![("first", json!({})), ("chosen", json!({"event_type": EventType::QuoteAccepted}))],
            }),
            refusals: vec![|_| ApiError::WebhookInactive],
            links: of_test(),
            success: answer(202, "The test is queued.", "Delivery", test()).at("The delivery's path."),
            ..call(Method::POST, Tag::Webhooks)
        },
    ]
}

fn deliveries() -> Vec<Call> {
    let mut query = paging();
    query.extend(filters());
    let page = examples::page(&examples::delivery(), &examples::cursor(examples::DELIVERY));
    vec![
        Call {
            id: "listDeliveries",
            path: "/webhooks/{id}/deliveries/",
            summary: "List a webhook's deliveries",
            description: "Newest event first. `state` alone is answered from an index; other filters look through the log, and a page may be short, or empty, before its end: go on until `next_cursor` is null. The log of a deleted webhook can still be read; what waited counts as cancelled from the deletion on.",
            query,
            success: answer(200, "A page of the log.", "DeliveryList", page),
            ..call(Method::GET, Tag::Deliveries)
        },
        Call {
            id: "readDelivery",
            path: "/webhooks/{id}/deliveries/{delivery_id}/",
            summary: "Read a delivery",
            description: "With the exact body that is sent, for as long as it is kept, and every attempt: when, how long, what came back, or why nothing did.",
            links: vec![("readEvent", json!({"event_id": "$response.body#/event_id"}))],
            success: answer(200, "The delivery.", "DeliveryDetail", examples::detail()),
            ..call(Method::GET, Tag::Deliveries)
        },
        Call {
            id: "resendDelivery",
            path: "/webhooks/{id}/deliveries/{delivery_id}/resend/",
            summary: "Send a delivery again",
            description: "In whatever state it is, unless it or its body is older than what is kept, or it has had 1,000 attempts: with the same id and the same body, in a fresh run of the schedule. Two concurrent requests make one run. While the webhook is paused, the delivery is held. The answer comes before the first attempt: read the delivery to see its outcome. If the message broker is unavailable, the delivery waits, and is sent when the broker is available again. The call is refused while waiting deliveries of the webhook are being cancelled.",
            body: Some(Body { need: Need::Optional, schema: "Nothing", examples: vec![("nothing", json!({}))] }),
            refusals: vec![|_| ApiError::TooOld, |_| ApiError::BodyExpired, |_| ApiError::TooOften, |_| {
                ApiError::Cancelling
            }],
            success: answer(202, "The delivery is queued.", "Delivery", examples::accepted())
                .at("The delivery's path."),
            ..call(Method::POST, Tag::Deliveries)
        },
        Call {
            id: "readEvent",
            path: "/events/{event_id}/",
            summary: "Read what became of an event",
            description: "For each webhook of the tenant: its delivery, or why there is none. An event is told from others by its type and millisecond too, so one id may stand for several, of which the newest ten are shown; of an id that very many events have, the newest of some. An event that no webhook wanted when it came is not kept, and others are kept as long as their bodies.",
            refusals: vec![|_| ApiError::UnknownEvent],
            success: answer(200, "The events of this id, newest first.", "EventList", examples::events()),
            ..call(Method::GET, Tag::Deliveries)
        },
    ]
}

fn recovery() -> Vec<Call> {
    let progress = json!({"id": "$request.path.id", "recovery_id": "$response.body#/id"});
    vec![
        Call {
            id: "recoverDeliveries",
            path: "/webhooks/{id}/recover/",
            summary: "Recover dropped or skipped deliveries",
            description: "Sends again every delivery of the webhook that is in one of `states`, of events that fired in a span of time and whose bodies are kept: with the same id and the same body, in a fresh run of the schedule. Deliveries made after the request are left out. It continues in the background, at a measured pace, and survives restarts. While one runs, another one is refused (409 `recovering`), and `Location` leads to the one that runs. If all that it would send has no body any more, the call is refused (409 `body_expired`). The call is refused while waiting deliveries of the webhook are being cancelled.",
            body: Some(Body {
                need: Need::Required,
                schema: "NewRecovery",
                examples: vec![
                    ("today", json!({"since": "2026-03-01T00:00:00Z"})),
                    (
                        "span",
                        json!({"since": "2026-03-01T00:00:00Z", "until": "2026-03-01T06:00:00Z",
                                    "states": Recoverable::ALL.map(Recoverable::as_str)}),
                    ),
                    ("count", json!({"since": "2026-03-01T00:00:00Z", "count_only": true})),
                ],
            }),
            refusals: vec![|_| ApiError::BodyExpired, |_| ApiError::Cancelling, recovering],
            links: vec![("readRecovery", progress)],
            success: answer(202, "The recovery is under way.", "Recovery", examples::recovery())
                .at("The recovery's path."),
            other_success: Some(answer(
                200,
                "With `count_only`: how many deliveries a recovery would send again now.",
                "RecoverableCount",
                examples::recoverable(),
            )),
            ..call(Method::POST, Tag::Recovery)
        },
        Call {
            id: "readRecovery",
            path: "/webhooks/{id}/recover/{recovery_id}/",
            summary: "Read a recovery's progress",
            description: "How many deliveries have been sent again, and whether it is done.",
            success: answer(200, "The recovery.", "Recovery", examples::recovery()),
            ..call(Method::GET, Tag::Recovery)
        },
        Call {
            id: "cancelDeliveries",
            path: "/webhooks/{id}/cancel/",
            summary: "Cancel waiting deliveries",
            description: "Cancels the deliveries of the webhook that are pending or retrying, those held by a pause included, and ends its running recovery. The webhook stays: what comes after the request is delivered. It goes on in the background, and survives restarts; `is_cancelling` of the webhook says when it is done. An attempt that is under way is not broken off: if it succeeds, its delivery has succeeded. Until it is done, resends and recoveries of this webhook are refused.",
            body: Some(Body { need: Need::Optional, schema: "Nothing", examples: vec![("nothing", json!({}))] }),
            success: answer(202, "What waits is being cancelled.", "Cancellation", json!({"state": "running"})),
            ..call(Method::POST, Tag::Recovery)
        },
        Call {
            id: "listEventTypes",
            path: "/event-types/",
            summary: "List the event types",
            description: "All seven, each with a description, a JSON Schema of its `data`, and a realistic sample.",
            success: answer(200, "The seven event types.", "EventTypeList", examples::event_types()),
            ..call(Method::GET, Tag::EventTypes)
        },
    ]
}

fn insight() -> Vec<Call> {
    let cursor = examples::cursor(examples::NOTICE);
    vec![
        Call {
            id: "readStats",
            path: "/webhooks/{id}/stats/",
            summary: "Read a webhook's statistics",
            description: "Attempts by outcome class, deliveries that succeeded and that were dropped, and how long attempts took, by hour or day (UTC) without gaps: the last 24 hours or 30 days unless asked otherwise. `from` and `to` are widened to whole steps; a span has at most 31 days by hour and 92 by day. Percentiles are estimates, within a factor of two. Kept for 90 days.",
            query: span(),
            success: answer(200, "The statistics.", "Stats", examples::stats()),
            ..call(Method::GET, Tag::Insight)
        },
        Call {
            id: "listNotices",
            path: "/webhooks/{id}/notices/",
            summary: "List what administrators were told",
            description: "Newest first, for 90 days at most and no longer than the webhook is there: that the webhook fails for long, drops deliveries or works again, and that somebody registered, changed, paused, activated or deleted it. The business application gets the same as messages, a moment later.",
            query: paging(),
            success: answer(200, "A page of the list.", "NoticeList", examples::page(&examples::notice(), &cursor)),
            ..call(Method::GET, Tag::Insight)
        },
        Call {
            id: "listHistory",
            path: "/webhooks/{id}/history/",
            summary: "List who did what",
            description: "Newest first: each registration, change, deletion, test, resend, recovery and cancellation, with the user and what was changed or asked for, never a secret. Kept with the webhook and for 90 days after its deletion.",
            query: paging(),
            success: answer(200, "A page of the list.", "HistoryList", examples::page(&examples::history(), &cursor)),
            ..call(Method::GET, Tag::Insight)
        },
    ]
}

fn documentation() -> Vec<Call> {
    let page = |id, path, summary, media_type, schema| {
        let content = Some(Content { media_type, schema, example: None });
        let description = "As it is served by this version, with the limits that are in force.";
        let success = Success { status: 200, description: "The document.", content, location: None };
        Call { id, path, summary, description, success, ..call(Method::GET, Tag::Documentation) }
    };
    let text = || json!({"type": "string"});
    vec![
        page(
            "readOpenApi",
            "/openapi.json",
            "This description, for programs",
            "application/json",
            json!({"type": "object", "additionalProperties": true}),
        ),
        page("readAsyncApi", "/asyncapi.yaml", "The messages on RabbitMQ and to receivers", "text/plain", text()),
        page(
            "readSchema",
            "/schemas/{file}",
            "The JSON Schema of a message",
            "application/schema+json",
            json!({"type": "object", "additionalProperties": true}),
        ),
        page("readDocs", "/docs/", "This description, for people", "text/html", text()),
        page("readDocsStyle", "/docs/style.css", "Its style sheet", "text/css", text()),
    ]
}

fn answer(status: u16, description: &'static str, schema: &str, example: Value) -> Success {
    let content = Content { media_type: "application/json", schema: reference(schema), example: Some(example) };
    Success { status, description, content: Some(content), location: None }
}

fn test() -> Value {
    let mut test = examples::accepted();
    test["is_test"] = json!(true);
    test["attempts"] = json!(0);
    test["next_attempt_at"] = test["created_at"].clone();
    test
}

/// Links to the calls that take a webhook's id.
fn of_webhook(id: &str) -> Vec<(&'static str, Value)> {
    [
        "readWebhook",
        "changeWebhook",
        "testWebhook",
        "listDeliveries",
        "recoverDeliveries",
        "readStats",
        "listNotices",
        "listHistory",
        "cancelDeliveries",
        "deleteWebhook",
    ]
    .map(|call| (call, json!({"id": id})))
    .into()
}

/// Links to the calls that take a delivery's id.
fn of_delivery(id: &str) -> Vec<(&'static str, Value)> {
    ["readDelivery", "resendDelivery"].map(|call| (call, json!({"id": "$request.path.id", "delivery_id": id}))).into()
}

/// The same, and what became of the test's event.
fn of_test() -> Vec<(&'static str, Value)> {
    let mut links = of_delivery("$response.body#/id");
    links.push(("readEvent", json!({"event_id": "$response.body#/event_id"})));
    links
}

fn paging() -> Vec<Parameter> {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT});
    vec![
        parameter("limit", "Entries on the page, at most.", limit, json!(DEFAULT_LIMIT)),
        parameter(
            "cursor",
            "`next_cursor` of the page before.",
            json!({"type": "string", "pattern": "^[0-9a-f]{40}$"}),
            examples::cursor(examples::DELIVERY),
        ),
    ]
}

fn span() -> Vec<Parameter> {
    let time = || json!({"type": "string", "format": "date-time"});
    let step = json!({"type": "string", "enum": ["hour", "day"], "default": "hour"});
    vec![
        parameter("from", "The beginning of the span, included.", time(), json!("2026-03-01T00:00:00Z")),
        parameter("to", "Its end, not included; by default now.", time(), json!("2026-03-02T00:00:00Z")),
        parameter("step", "The length of a step.", step, json!("hour")),
    ]
}

fn filters() -> Vec<Parameter> {
    let state = reference("DeliveryState");
    let time = || json!({"type": "string", "format": "date-time"});
    vec![
        parameter("state", "Only deliveries in this state.", state, json!("dropped")),
        parameter("event_type", "Only deliveries of this type.", reference("EventType"), json!(EventType::QuoteClosed)),
        parameter(
            "created_after",
            "Only deliveries that were recorded at this time or later.",
            time(),
            json!("2026-03-01T00:00:00Z"),
        ),
        parameter(
            "created_before",
            "Only deliveries that were recorded before this time.",
            time(),
            json!("2026-03-02T00:00:00Z"),
        ),
    ]
}

const fn parameter(name: &'static str, description: &'static str, schema: Value, example: Value) -> Parameter {
    Parameter { name, description, schema, example }
}
