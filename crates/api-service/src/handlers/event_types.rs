//! `/api/v1/event-types/`: what a webhook can be subscribed to (specification, section 6).

use actix_web::HttpResponse;
use domain::{EventType, catalogue};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::problem::{Answer, ApiError};

#[derive(Serialize)]
struct EventTypeView {
    event_type: EventType,
    description: &'static str,
    /// A JSON Schema of `data`.
    schema: &'static RawValue,
    /// A sample of `data`.
    sample: &'static RawValue,
}

#[derive(Serialize)]
struct ListView {
    data: Vec<EventTypeView>,
}

/// Lists all seven.
pub(crate) async fn list() -> Answer {
    let data = EventType::ALL.into_iter().map(view).collect::<Result<_, _>>().map_err(ApiError::unexpected)?;
    Ok(HttpResponse::Ok().json(ListView { data }))
}

fn view(event_type: EventType) -> serde_json::Result<EventTypeView> {
    Ok(EventTypeView {
        event_type,
        description: catalogue::description(event_type),
        schema: serde_json::from_str(catalogue::schema(event_type))?,
        sample: serde_json::from_str(catalogue::sample(event_type))?,
    })
}
