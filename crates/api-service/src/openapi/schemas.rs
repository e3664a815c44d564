//! The schemas of requests and answers. The end-to-end tests check them against real answers.

use domain::{DeliveryState, EventType, NoticeType, OutcomeClass};
use ledger::{Absence, Action, Recoverable};
use serde_json::{Map, Value, json};
use service_kit::settings::Limits;

use super::{
    call::{PROBLEM, reference},
    examples,
};
use crate::violation::LISTED;

/// Control characters, and the hidden ones up to U+FFFF: dialects of regular expressions write those beyond differently.
pub(super) const HIDDEN: &str = r"\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb";
/// Further characters that are invisible when they stand alone.
const BLANK: &str = r"\s\u180b-\u180f\u200c\u200d\u2800\ufe00-\ufe0f";

/// All schemas, by name.
pub(super) fn all(limits: &Limits, codes: &[&str]) -> Value {
    let mut all = json!({});
    all["NewWebhook"] = closed(object(&editable(limits)), &["name", "url", "events"]);
    let mut changes = editable(limits);
    let is_active =
        "false pauses the webhook: new events are skipped, and waiting deliveries are held until it is true again.";
    changes.push(("is_active", boolean(is_active)));
    all["WebhookChange"] = closed(object(&changes), &[]);
    all["Webhook"] = whole(&webhook(limits));
    let mut created = webhook(limits);
    let secret = "What signs its deliveries. The key of `X-Service-Signature` is the whole text, prefix included; that of `webhook-signature` is what the text after the prefix decodes to as base64, as libraries of Standard Webhooks take it. Shown here and never again.";
    created
        .push(("signing_secret", json!({"type": "string", "pattern": "^whsec_[0-9a-f]{64}$", "description": secret})));
    all["CreatedWebhook"] = whole(&created);
    all["WebhookList"] = list("Webhook");
    all["LastFailure"] = last_failure();
    all["Backlog"] = backlog();
    let chosen = described("EventType", "One that the webhook is subscribed to; by default its first.");
    all["Test"] = closed(object(&[("event_type", chosen)]), &[]);
    all["Nothing"] = closed(json!({"type": "object"}), &[]);
    all["Delivery"] = whole(&delivery());
    let mut detail = delivery();
    let request =
        "What every attempt sends. Signatures and their time are each attempt's own, and signatures are not kept.";
    detail.push(("request", described("SentRequest", request)));
    let log = json!({"type": "array", "items": reference("Attempt"), "description": "Every attempt, first to last."});
    detail.push(("attempt_log", log));
    all["DeliveryDetail"] = whole(&detail);
    all["DeliveryList"] = list("Delivery");
    all["DeliveryState"] = delivery_state();
    all["SentRequest"] = whole(&sent_request());
    all["Attempt"] = whole(&attempt());
    add_recoveries_and_insight(&mut all);
    add_events(&mut all);
    all["EventType"] = json!({"type": "string", "enum": EventType::ALL, "description": "One of the seven."});
    all["EventTypeDetail"] = whole(&event_type());
    all["EventTypeList"] = whole(&[("data", json!({"type": "array", "items": reference("EventTypeDetail")}))]);
    for event_type in EventType::ALL {
        add_data(&mut all, event_type);
    }
    all[PROBLEM] = object(&problem(codes));
    all[PROBLEM]["required"] = json!(["type", "title", "status", "code", "detail", "request_id"]);
    all["Fault"] = whole(&violation());
    all
}

/// What is asked for and told of a webhook beside its deliveries.
fn add_recoveries_and_insight(all: &mut Value) {
    all["NewRecovery"] = closed(object(&new_recovery()), &[]);
    // Inside of `allOf`, so that generators of clients see the members.
    all["NewRecovery"]["allOf"] = json!([{"oneOf": [{"required": ["since"]}, {"required": ["from"]}]}]);
    all["RecoverableCount"] = whole(&[
        (
            "count",
            json!({"type": "integer", "minimum": 0, "maximum": 100_000,
                         "description": "How many deliveries a recovery would send again now."}),
        ),
        ("is_exact", boolean("false when there are more: the count stops at 100,000.")),
    ]);
    all["Recovery"] = whole(&recovery());
    all["Stats"] = whole(&stats());
    all["Notice"] = whole(&notice());
    all["NoticeList"] = list("Notice");
    all["HistoryEntry"] = whole(&history_entry());
    all["HistoryList"] = list("HistoryEntry");
    let running = json!({"type": "string", "const": "running", "description": "It goes on in the background."});
    all["Cancellation"] = whole(&[("state", running)]);
}

fn add_events(all: &mut Value) {
    all["EventList"] = whole(&[
        (
            "data",
            json!({"type": "array", "items": reference("FoundEvent"), "minItems": 1, "maxItems": 10,
                        "description": "Newest first."}),
        ),
        ("is_complete", boolean("false when there are more than these, all older.")),
    ]);
    all["FoundEvent"] = whole(&found_event());
    all["EventAtWebhook"] = whole(&event_at_webhook());
    all["EventDelivery"] = whole(&event_delivery());
    all["Absence"] = json!({"type": "string", "enum": Absence::ALL.map(Absence::as_str),
                            "description": "Why a webhook has no delivery of an event; stable, for programs."});
}

type Members = Vec<(&'static str, Value)>;

fn editable(limits: &Limits) -> Members {
    vec![
        (
            "name",
            json!({"type": "string", "minLength": 1, "maxLength": limits.name_chars,
                        "pattern": format!("^[^{HIDDEN}]*[^{BLANK}{HIDDEN}][^{HIDDEN}]*$"),
                        "description": "A name for people: not blank, without control characters, and without characters that are invisible or turn the direction of writing."}),
        ),
        (
            "url",
            json!({"type": "string", "format": "uri", "pattern": "^[hH][tT][tT][pP][sS]:", "maxLength": limits.url_chars,
                       "description": "Where deliveries are sent: an https URL of a host that can be reached from the internet, without user name and password. Kept as it is written.",
                       "examples": [examples::URL]}),
        ),
        (
            "events",
            json!({"type": "array", "items": reference("EventType"), "minItems": 1, "uniqueItems": true,
                          "description": "The event types that it is subscribed to."}),
        ),
    ]
}

fn webhook(limits: &Limits) -> Members {
    let mut members = vec![("id", uuid("Its id."))];
    members.extend(editable(limits).into_iter().map(|(name, mut schema)| {
        // Names from before hidden characters were refused have no pattern.
        if let Some(keywords) = schema.as_object_mut().filter(|_| name == "name") {
            keywords.shift_remove("pattern");
        }
        (name, schema)
    }));
    members.extend([
        ("is_active", boolean("Whether it is sent anything; false while it is paused.")),
        ("created_at", time("When it was registered.")),
        ("updated_at", time("When an administrator last changed it.")),
        ("last_success_at", nullable_time("When a receiver last answered 2xx, or null.")),
        ("failure_count", count("Failed attempts since the last success.")),
        ("failing_since", nullable_time("When the first of them ended, or null.")),
        ("last_failure", nullable_reference("LastFailure", "The last failed attempt, or null. A later success leaves it here.")),
        ("next_attempt_at", nullable_time("When the next retry is due, or null: none waits, or the webhook is paused. Beyond 1,000 that wait: that of the oldest 1,000.")),
        ("deliveries", described("Backlog", "What has not been delivered.")),
        ("is_cancelling", boolean("Whether waiting deliveries are being cancelled; resends and recoveries are refused meanwhile.")),
        ("is_queued", boolean("Whether deliveries are queued, as the receiver answers late or not at all. The service sends them automatically.")),
    ]);
    members
}

fn last_failure() -> Value {
    whole(&[("at", time("When the attempt ended.")), ("error", text("The failure in words."))])
}

fn backlog() -> Value {
    let capped = |what: &str| {
        let description = format!("{what} Counted up to 1,000: 1000 means that many or more.");
        json!({"type": "integer", "minimum": 0, "maximum": 1000, "description": description})
    };
    whole(&[
        (
            "waiting",
            capped(
                "Deliveries that wait for a retry or, while the webhook is paused, are held. First attempts on their way are not counted.",
            ),
        ),
        ("dropped", capped("Dropped deliveries.")),
        ("skipped", capped("Deliveries of events that came while it was paused.")),
    ])
}

fn stats() -> Members {
    let mut step = vec![("from", time("When the step begins."))];
    step.extend(counts());
    vec![
        ("from", time("When the first step begins.")),
        ("to", time("When the last step ends.")),
        ("step", json!({"type": "string", "enum": ["hour", "day"], "description": "The length of a step."})),
        ("total", whole(&counts())),
        ("data", json!({"type": "array", "items": whole(&step), "description": "Every step, first to last."})),
    ]
}

fn counts() -> Members {
    let outcomes = OutcomeClass::ALL.map(|class| (class.as_str(), count("Attempts with this outcome.")));
    let estimate = |what: &str| json!({"type": ["integer", "null"], "minimum": 0, "description": what});
    let percentiles = whole(&[
        ("p50", estimate("Half of the attempts took less; null without an attempt.")),
        ("p95", estimate("Nineteen of twenty took less; null without an attempt.")),
    ]);
    vec![
        ("attempts", count("Attempts that ended in the step.")),
        ("outcomes", whole(&outcomes)),
        ("succeeded", count("Deliveries that succeeded.")),
        ("dropped", count("Deliveries that were dropped.")),
        ("duration_ms", percentiles),
    ]
}

fn notice() -> Members {
    let types = NoticeType::ALL.map(NoticeType::as_str);
    vec![
        ("notice_id", uuid("Its id, also that of its message.")),
        ("type", json!({"type": "string", "enum": types, "description": "What it is about."})),
        ("created_at", time("When it happened.")),
        ("tenant_id", uuid("The tenant.")),
        ("webhook_id", uuid("The webhook.")),
        ("webhook_name", text("The webhook's name at that time.")),
        ("summary", text("What happened, in a sentence or two.")),
        ("details", free("What the type has beside these; `notice.schema.json` describes it.")),
    ]
}

fn history_entry() -> Members {
    let actions = Action::ALL.map(Action::as_str);
    vec![
        ("id", uuid("Its id.")),
        ("created_at", time("When.")),
        ("user", text("Who, as the business application names its users.")),
        ("action", json!({"type": "string", "enum": actions, "description": "What they did."})),
        ("details", free("What was registered, changed (each member `from` and `to`), deleted or asked for.")),
    ]
}

fn delivery_state() -> Value {
    let states = DeliveryState::ALL.map(DeliveryState::as_str);
    json!({"type": "string", "enum": states,
           "description": "`pending`: no attempt of this run yet. `retrying`: failed, another attempt is due. `succeeded`: the receiver answered 2xx. `dropped`: every attempt of the schedule failed. `cancelled`: the webhook was deleted, or paused for too long, or an administrator cancelled waiting deliveries. `skipped`: the webhook was paused when the event came."})
}

fn delivery() -> Members {
    vec![
        ("id", uuid("Its id, sent as `X-Service-Webhook-Id` and `webhook-id` on every attempt.")),
        ("webhook_id", uuid("The webhook.")),
        ("event_id", uuid("The event, as its publisher named it.")),
        ("event_type", reference("EventType")),
        ("is_test", boolean("Whether an administrator asked for it as a test.")),
        ("state", reference("DeliveryState")),
        ("attempts", count("Attempts made, those before a resend included.")),
        ("created_at", time("When the service recorded it.")),
        ("occurred_at", time("When the event fired, to the millisecond. The log is ordered by it.")),
        ("first_failed_at", nullable_time("When this run of the schedule began to fail, or null.")),
        (
            "next_attempt_at",
            nullable_time("When the next attempt is due, or null. While the webhook is paused, none is made."),
        ),
        ("is_body_expired", boolean("Whether its body is no longer kept: then it cannot be sent again.")),
    ]
}

fn sent_request() -> Members {
    let headers = whole(&[
        ("Content-Type", json!({"type": "string", "const": "application/json"})),
        ("X-Service-Webhook-Id", uuid("The delivery's id.")),
        ("X-Service-Event", reference("EventType")),
    ]);
    vec![
        ("method", json!({"type": "string", "const": "POST"})),
        ("headers", headers),
        ("body", nullable("The exact text that is signed and sent, or null if it is no longer kept.")),
    ]
}

fn attempt() -> Members {
    let outcomes = OutcomeClass::ALL.map(OutcomeClass::as_str);
    vec![
        ("attempt", json!({"type": "integer", "minimum": 1, "description": "Its number."})),
        ("url", text("Where it was sent.")),
        ("started_at", time("When it began.")),
        ("duration_ms", count("How long it took, in milliseconds.")),
        (
            "outcome",
            json!({"type": "string", "enum": outcomes, "description": "What came of it: `success` is any 2xx, `status` any other answer; the rest say what was in the way of an answer."}),
        ),
        (
            "status",
            json!({"type": ["integer", "null"], "minimum": 100, "maximum": 999, "description": "The HTTP status of the answer, if one came."}),
        ),
        ("error", nullable("The failure in words, or null.")),
        ("response_body", text("The first KiB of the answer's body. What is not UTF-8 in it is replaced.")),
        (
            "signed_at",
            time(
                "The `t` of the header `X-Service-Signature`, and the `webhook-timestamp`, that was sent, in whole seconds.",
            ),
        ),
    ]
}

fn recoverable_states(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string", "enum": Recoverable::ALL.map(Recoverable::as_str)},
           "minItems": 1, "uniqueItems": true, "description": description})
}

fn new_recovery() -> Members {
    let mut states = recoverable_states("Deliveries in these states.");
    states["default"] = json!(["dropped"]);
    vec![
        ("since", time("Deliveries of events that fired at this time or later; not in the future.")),
        ("from", time("Another name of `since`: one of the two is required.")),
        ("until", time("Deliveries of events that fired before this time, which is later than `since`.")),
        ("states", states),
        (
            "count_only",
            json!({"type": "boolean", "default": false,
                   "description": "true begins nothing: the answer is how many deliveries a recovery would send again now."}),
        ),
    ]
}

fn recovery() -> Members {
    vec![
        ("id", uuid("Its id.")),
        ("since", time("Deliveries of events that fired at this time or later.")),
        ("until", nullable_time("Deliveries of events that fired before this time, or null.")),
        ("states", recoverable_states("Deliveries that were in these states.")),
        (
            "state",
            json!({"type": "string", "enum": ["running", "done"], "description": "Whether it still has work to do."}),
        ),
        ("resent", count("Deliveries that have been sent again.")),
        ("created_at", time("When it was asked for.")),
        ("finished_at", nullable_time("When it was done, or null.")),
    ]
}

fn found_event() -> Members {
    vec![
        ("event_id", uuid("The event, as its publisher named it.")),
        ("event_type", reference("EventType")),
        ("occurred_at", time("When it fired, to the millisecond.")),
        ("received_at", time("When the service stored it.")),
        (
            "webhooks",
            json!({"type": "array", "items": reference("EventAtWebhook"),
                   "description": "Every webhook of the tenant, deleted ones included while their logs are kept."}),
        ),
    ]
}

fn event_at_webhook() -> Members {
    vec![
        ("webhook_id", uuid("The webhook.")),
        ("name", text("Its name now.")),
        ("is_deleted", boolean("Whether it is deleted.")),
        ("delivery", nullable_reference("EventDelivery", "The event's delivery to it, or null.")),
        ("reason", nullable_reference("Absence", "Why there is no delivery, or null when there is one.")),
        ("explanation", nullable("The reason, for people.")),
    ]
}

/// What is shown of a delivery beside its event and its webhook.
fn event_delivery() -> Members {
    const SHOWN: [&str; 6] = ["id", "state", "attempts", "next_attempt_at", "created_at", "is_test"];
    let mut members = delivery();
    members.retain(|(name, _)| SHOWN.contains(name));
    members.sort_by_key(|(name, _)| SHOWN.iter().position(|shown| shown == name));
    members
}

fn event_type() -> Members {
    vec![
        ("event_type", reference("EventType")),
        ("description", text("When it fires, and what its data holds.")),
        ("schema", free("A JSON Schema (draft 2020-12) of the envelope's `data`.")),
        ("sample", free("What `data` can look like.")),
    ]
}

fn problem(codes: &[&str]) -> Members {
    vec![
        ("type", json!({"type": "string", "const": "about:blank"})),
        ("title", text("The status in words.")),
        ("status", json!({"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."})),
        ("code", json!({"type": "string", "enum": codes, "description": "What is wrong; stable, for programs."})),
        ("detail", text("What is wrong, for people.")),
        (
            "errors",
            json!({"type": "array", "items": reference("Fault"), "minItems": 1, "maxItems": LISTED,
                   "description": "The faulty fields or parameters."}),
        ),
        (
            "more_errors",
            json!({"type": "integer", "minimum": 1, "description": "How many more there are than `errors` lists; absent when it lists all."}),
        ),
        ("request_id", text("The answer's `X-Request-Id`.")),
    ]
}

fn violation() -> Members {
    vec![
        ("field", text("The member or parameter, as in `events[1]`; empty for the body as a whole.")),
        (
            "code",
            json!({"type": "string", "pattern": "^[a-z_]+$", "description": "What is wrong with it; stable, for programs."}),
        ),
        ("message", text("What is wrong with it, for people. Reads on from the field's name.")),
    ]
}

/// The name of the schema of an event type's data, or of a definition in it: `QuoteClosedData`, `LineItemData`.
fn data_name(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split(['.', '_']).map(capital).collect::<String>() + "Data"
}

/// Adds the schema of an event type's data. Its definitions become schemas of the document, because generators of
/// clients follow references to no others. Definitions of one name are the same in every event type.
fn add_data(all: &mut Value, event_type: EventType) {
    let mut schema = examples::schema(event_type);
    point_to_schemas(&mut schema);
    let mut definitions = None;
    if let Some(members) = schema.as_object_mut() {
        members.shift_remove("$schema");
        members.shift_remove("title");
        definitions = members.shift_remove("$defs");
        members.insert("examples".to_owned(), json!([examples::sample(event_type)]));
    }
    all[data_name(event_type.as_str())] = schema;
    for (name, definition) in definitions.iter().filter_map(Value::as_object).flatten() {
        all[data_name(name)] = definition.clone();
    }
}

/// Turns references into a schema's own `$defs` into references to the document's schemas.
fn point_to_schemas(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(target) = members.get_mut("$ref")
                && let Some(name) = target.as_str().and_then(|target| target.strip_prefix("#/$defs/"))
            {
                *target = format!("#/components/schemas/{}", data_name(name)).into();
            }
            members.values_mut().for_each(point_to_schemas);
        }
        Value::Array(items) => items.iter_mut().for_each(point_to_schemas),
        _ => {}
    }
}

/// A schema of the document, or null.
fn nullable_reference(schema: &str, description: &str) -> Value {
    json!({"oneOf": [reference(schema), {"type": "null"}], "description": description})
}

/// An object with whatever members.
fn free(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": true})
}

fn list(entry: &str) -> Value {
    whole(&[
        ("data", json!({"type": "array", "items": reference(entry)})),
        ("next_cursor", nullable("The next page's `cursor`; null on the last page.")),
    ])
}

fn object(members: &[(&'static str, Value)]) -> Value {
    let properties = members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone()));
    json!({"type": "object", "properties": Map::from_iter(properties)})
}

/// An answer's schema: all members are present, and later versions may add some.
fn whole(members: &[(&'static str, Value)]) -> Value {
    let mut whole = object(members);
    whole["required"] = members.iter().map(|(name, _)| *name).collect();
    whole
}

/// A request's schema: other members are rejected.
fn closed(mut object: Value, required: &[&str]) -> Value {
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object["additionalProperties"] = json!(false);
    object
}

fn described(schema: &str, description: &str) -> Value {
    let mut described = reference(schema);
    described["description"] = json!(description);
    described
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn nullable(description: &str) -> Value {
    json!({"type": ["string", "null"], "description": description})
}

fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}

fn uuid(description: &str) -> Value {
    json!({"type": "string", "format": "uuid", "description": description})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn nullable_time(description: &str) -> Value {
    json!({"type": ["string", "null"], "format": "date-time", "description": description})
}
