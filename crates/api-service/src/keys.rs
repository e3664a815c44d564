//! `/api/v1/keys/`: keys by which programs call the API, for administrators alone; and the functions that these calls share
//! with the console's page.

use std::{future, ops::Deref};

use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, dev::Payload, http::header::LOCATION};
use domain::{KeyId, time_text::written};
use ledger::{ApiKey, CredentialHash, NewApiKey, Page};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    http::{
        ApiError, Body, Caller, Checked, Fields, FromBody, Given, HandlerResult, Id, List, Members, Need, Query,
        Source, cut,
        fields::{timestamp, violation},
    },
    sessions::SessionId,
    state::Rules,
    webhooks::settings::name,
};

/// An administrator who calls by a session. A key makes no keys.
pub(crate) struct Administrator(Caller);

impl Deref for Administrator {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl FromRequest for Administrator {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let has_session = request.extensions().get::<SessionId>().is_some();
        let caller = Caller::from_request(request, payload).into_inner();
        let session = if has_session { Ok(()) } else { Err(ApiError::SessionRequired) };
        future::ready(caller.and_then(|caller| session.map(|()| Self(caller))))
    }
}

/// The name and the expiry of a new key.
pub(crate) struct KeySettings {
    name: String,
    expires_at: Option<OffsetDateTime>,
}

impl FromBody for KeySettings {
    fn read(members: Members, rules: &Rules) -> Checked<Self> {
        settings(&members, rules)
    }
}

/// Reads the settings of a new key.
pub(crate) fn settings(source: &dyn Source, rules: &Rules) -> Checked<KeySettings> {
    Fields::check(source, |fields| {
        let mut expires_at = None;
        let name = fields.required("name", |field, given| name(field, given, rules));
        fields.set(&mut expires_at, "expires_at", Need::Optional, expiry);
        Some(KeySettings { name: name?, expires_at })
    })
}

/// Reads the time of an expiry. Null, or an empty field of a form, is none.
fn expiry(field: &str, given: &Given<'_>) -> Checked<Option<OffsetDateTime>> {
    match given {
        Given::Json(Value::Null) => return Ok(None),
        Given::Form(texts) if texts.iter().all(|text| text.is_empty()) => return Ok(None),
        _ => {}
    }
    let at = timestamp(field, given)?.as_datetime();
    match at > OffsetDateTime::now_utc() {
        true => Ok(Some(at)),
        false => violation(field, "in_the_past", "must be a time in the future"),
    }
}

/// Answers with the tenant's keys, in the order of their creation.
pub(crate) async fn list(
    caller: Administrator,
    Query(Page { after, limit }, (), cursors): Query<KeyId>,
) -> HandlerResult {
    let keys = caller.ledger.key_list(caller.admin.tenant, Page { after, limit: limit + 1 }).await?;
    let (keys, next_cursor) = cut(keys, limit, cursors, |key| key.id.as_uuid());
    Ok(HttpResponse::Ok().json(List { data: keys.iter().map(view).collect(), next_cursor }))
}

/// Creates a key. Only this answer holds it.
pub(crate) async fn post(caller: Administrator, Body(settings): Body<KeySettings>) -> HandlerResult {
    let (created, key) = create(&caller, Uuid::now_v7().into(), settings).await?;
    let mut answer = view(&created);
    answer["key"] = key.into();
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/keys/{}/", created.id))).json(answer))
}

/// Creates a key, and returns the text that a program sends with it.
pub(crate) async fn create(caller: &Caller, id: KeyId, settings: KeySettings) -> Result<(ApiKey, String), ApiError> {
    let key = ApiKey::generate().map_err(ApiError::unexpected)?;
    let KeySettings { name, expires_at } = settings;
    let new = NewApiKey { id, name, expires_at, hash: CredentialHash::of(&key) };
    let created = caller.ledger.key_create(&caller.admin, &new).await.map_err(ApiError::of_change)??;
    tracing::info!(key = %id, tenant = %caller.admin.tenant, "a key was created");
    Ok((created, key))
}

/// Revokes a key.
pub(crate) async fn delete(caller: Administrator, Id(id): Id<KeyId>) -> HandlerResult {
    revoke(&caller, id).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Revokes a key. From now on, it is answered like an unknown one.
pub(crate) async fn revoke(caller: &Caller, id: KeyId) -> Result<(), ApiError> {
    let revoked = caller.ledger.key_revoke(&caller.admin, id).await.map_err(ApiError::of_change)?;
    revoked.ok_or(ApiError::NotFound)?;
    tracing::info!(key = %id, tenant = %caller.admin.tenant, "a key was revoked");
    Ok(())
}

fn view(key: &ApiKey) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "expires_at": key.expires_at.and_then(written),
        "last_used_on": key.last_used_on.map(|day| day.to_string()),
        "created_at": written(key.created_at),
        "created_by": key.created_by,
    })
}
