//! What describes a call, and references into the document.

use actix_web::http::Method;
use serde_json::{Value, json};
use service_kit::settings::Limits;

use crate::{problem::ApiError, request::Need};

/// The name of the schema of errors.
pub(super) const PROBLEM: &str = "Problem";

/// One call of the API.
#[derive(Default)]
pub(super) struct Call {
    pub(super) id: &'static str,
    pub(super) method: Method,
    /// Below the base path.
    pub(super) path: &'static str,
    pub(super) tag: Tag,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) query: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) success: Success,
    /// What a request for something less is answered with.
    pub(super) other_success: Option<Success>,
    /// The errors that do not follow from the other members.
    pub(super) refusals: Vec<fn(&Limits) -> ApiError>,
    /// Calls to make after `success`. Each maps its parameters to places in this call's request or answer.
    pub(super) links: Vec<(&'static str, Value)>,
}

/// A chapter of the documentation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tag {
    #[default]
    Webhooks,
    Deliveries,
    Recovery,
    Insight,
    EventTypes,
    Documentation,
}

/// A parameter of a query string.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Value,
    pub(super) example: Value,
}

pub(super) struct Body {
    pub(super) need: Need,
    pub(super) schema: &'static str,
    /// Names and bodies.
    pub(super) examples: Vec<(&'static str, Value)>,
}

#[derive(Default)]
pub(super) struct Success {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content: Option<Content>,
    /// What the header `Location` points to, if it is sent.
    pub(super) location: Option<&'static str>,
}

pub(super) struct Content {
    pub(super) media_type: &'static str,
    pub(super) schema: Value,
    pub(super) example: Option<Value>,
}

impl Tag {
    pub(super) const ALL: [Self; 6] =
        [Self::Webhooks, Self::Deliveries, Self::Recovery, Self::Insight, Self::EventTypes, Self::Documentation];

    /// Its name, and what it is about.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Webhooks => ("Webhooks", "Register the URLs that are called, change them, pause them, try them out."),
            Self::Deliveries => {
                ("Deliveries", "What was sent, what came back, what is still to come; and one delivery sent again.")
            }
            Self::Recovery => (
                "Recovery",
                "What was dropped in an outage or skipped in a pause, sent again; or what waits, cancelled.",
            ),
            Self::Insight => {
                ("Insight", "How a webhook fares, what its administrators are told, and who changed what.")
            }
            Self::EventTypes => ("Event types", "What a webhook can be subscribed to."),
            Self::Documentation => ("Documentation", "This description. No session is needed."),
        }
    }
}

impl Success {
    /// The same with the header `Location`, which points to this.
    pub(super) fn at(self, location: &'static str) -> Self {
        Self { location: Some(location), ..self }
    }
}

impl Call {
    pub(super) fn is_public(&self) -> bool {
        self.tag == Tag::Documentation
    }
}

pub(super) fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

pub(super) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}
