//! Posted forms.

use std::{collections::BTreeSet, pin::Pin};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::CONTENT_TYPE,
    web::{self, Data},
};
use domain::TenantId;
use ledger::Actor;
use ring::hmac;
use serde_json::Value;
use url::form_urlencoded;
use uuid::Uuid;

use crate::{
    authentication::SessionId,
    problem::ApiError,
    request::{Members, read_body},
    state::State,
};

/// The text that the token signs, before the tenant: a session may change its organization. The key is the id of the session
/// that let the request pass.
const WHAT: &[u8] = b"a form of the console";

/// The fields of a form that carries the session's token. A handler takes it last.
pub(super) struct Form(Fields);

/// The fields of a form that needs no session.
pub(super) struct Fields(Vec<(String, String)>);

impl std::ops::Deref for Form {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl Fields {
    /// The first value of a field, without the white space around it. Empty when there is none.
    pub(super) fn first(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
    }

    /// Checks the session's token of a form that shows its organization itself, and may be older than a change of it.
    pub(super) fn check_of_any_organization(&self, request: &HttpRequest) -> Result<(), ApiError> {
        let shown = self.first("organization").parse().ok().map(|id: Uuid| id.into());
        check(request, self.first("token"), shown)
    }

    /// Every value of a field.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The fields of a webhook as members of a JSON body, which the API's own checks read.
    pub(super) fn webhook(&self) -> Members {
        let events = self.all("events").map(Value::from).collect();
        Members(vec![
            ("name".to_owned(), self.first("name").into()),
            ("url".to_owned(), self.first("url").into()),
            ("events".to_owned(), Value::Array(events)),
        ])
    }

    /// Those of them that differ from what the form showed. The order of events makes no difference: a browser posts
    /// them in that of the page.
    pub(super) fn webhook_changes(&self) -> Members {
        let is_changed = |name: &str| {
            let values = |field: &str| self.all(field).map(|value| value.trim().to_owned()).collect::<BTreeSet<_>>();
            values(&format!("shown_{name}")) != values(name)
        };
        let Members(members) = self.webhook();
        Members(members.into_iter().filter(|(name, _)| is_changed(name)).collect())
    }
}

/// Returns the token of the forms of the session that let this request pass, in its present organization. Nobody can make the
/// token without that session.
pub(super) fn token(request: &HttpRequest) -> Option<String> {
    let (key, text) = signed(request, None)?;
    Some(hex::encode(hmac::sign(&key, &text)))
}

/// The key and the text of the token, for the present organization if none is given.
fn signed(request: &HttpRequest, tenant: Option<TenantId>) -> Option<(hmac::Key, Vec<u8>)> {
    let extensions = request.extensions();
    let (id, admin) = (extensions.get::<SessionId>()?, extensions.get::<Actor>()?);
    let key = hmac::Key::new(hmac::HMAC_SHA256, id.expose().as_bytes());
    Some((key, [WHAT, tenant.unwrap_or(admin.tenant).as_uuid().as_bytes()].concat()))
}

fn check(request: &HttpRequest, token: &str, tenant: Option<TenantId>) -> Result<(), ApiError> {
    let (key, text) = signed(request, tenant).ok_or(ApiError::StaleForm)?;
    let tag = hex::decode(token).map_err(|_| ApiError::StaleForm)?;
    hmac::verify(&key, &text, &tag).map_err(|_| ApiError::StaleForm)
}

impl FromRequest for Fields {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let parts = <(HttpRequest, Data<State>, web::Payload)>::from_request(request, payload);
        Box::pin(async move {
            let (request, state, payload) = parts.await?;
            let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            if !kind.starts_with("application/x-www-form-urlencoded") {
                return Err(ApiError::StaleForm.into());
            }
            let body = read_body(request.headers(), payload, state.body_limit).await?;
            Ok(Self(form_urlencoded::parse(&body).into_owned().collect()))
        })
    }
}

impl FromRequest for Form {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, fields) = (request.clone(), Fields::from_request(request, payload));
        Box::pin(async move {
            let fields = fields.await?;
            check(&request, fields.first("token"), None)?;
            Ok(Self(fields))
        })
    }
}
