//! `/api/v1/event-types/`: what a webhook can be subscribed to (specification, section 6).

use actix_web::HttpResponse;
use domain::{EventType, catalogue};
use serde_json::{Value, json};

use crate::http::{Answer, ApiError};

/// Lists all seven.
pub(crate) async fn list() -> Answer {
    let data = EventType::ALL.into_iter().map(view).collect::<Result<Value, _>>().map_err(ApiError::unexpected)?;
    Ok(HttpResponse::Ok().json(json!({"data": data})))
}

/// An event type with a JSON Schema and a sample of its data.
fn view(event_type: EventType) -> serde_json::Result<Value> {
    Ok(json!({
        "event_type": event_type,
        "description": catalogue::description(event_type),
        "schema": serde_json::from_str::<Value>(catalogue::schema(event_type))?,
        "sample": serde_json::from_str::<Value>(catalogue::sample(event_type))?,
    }))
}
