//! Posted forms.

use std::{borrow::Cow, collections::BTreeSet, pin::Pin};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::CONTENT_TYPE,
    web::{self, Data},
};
use console::{FieldFault, WebhookForm};
use domain::TenantId;
use ledger::{Actor, WebhookSettings};
use ring::hmac;
use url::form_urlencoded;
use uuid::Uuid;

use crate::{
    http::{ApiError, Checked, Given, MAX_LISTED_VIOLATIONS, Source, Violation, json},
    sessions::SessionId,
    state::State,
    webhooks::headers,
};

/// How many characters of a field are shown again, and the bytes of what was shown at first.
const MAX_FIELD_CHARS: usize = 2_500;
const MAX_SHOWN_BYTES: usize = 16 * 1024;

/// The text that the token signs, before the tenant: a session may change its organization. The key is the id of the session
/// that let the request pass.
const TOKEN_PURPOSE: &[u8] = b"a form of the console";

/// The fields of a form that carries the session's token. A handler takes it last.
pub(super) struct Form(FormFields);

/// The fields of a form that needs no session, or of a query string.
pub(super) struct FormFields(Vec<(String, String)>);

impl std::ops::Deref for Form {
    type Target = FormFields;

    fn deref(&self) -> &FormFields {
        &self.0
    }
}

impl FormFields {
    pub(super) fn parse(text: &[u8]) -> Self {
        // A browser sends each line break as two characters.
        let line_breaks =
            |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into_owned(), value.replace("\r\n", "\n"));
        Self(form_urlencoded::parse(text).map(line_breaks).collect())
    }

    /// The first value of a field, without the white space around it. Empty when there is none.
    pub(super) fn first(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// Every value of a field, without the white space around it.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.trim())
    }

    /// Checks the session's token of a form that shows its organization itself, and may be older than a change of it.
    pub(super) fn check_of_any_organization(&self, request: &HttpRequest) -> Result<(), ApiError> {
        let shown = self.first("organization").parse().ok().map(|id: Uuid| id.into());
        check(request, self.first("token"), shown)
    }

    /// The form as it was filled in, as far as it is shown again, with what is wrong beside its fields.
    pub(super) fn filled_in(&self, violations: Vec<Violation>) -> WebhookForm {
        let mut form = WebhookForm { faults: faults(violations), ..WebhookForm::default() };
        // Values of headers are never shown, not even again.
        if self.all(headers::FIELD).any(|text| !text.is_empty()) {
            let message = "have to be filled in again, as no page shows a value".to_owned();
            form.faults.push(FieldFault { field: headers::FIELD.to_owned(), message });
        }
        for (name, text) in &self.0 {
            if name == headers::FIELD {
                continue;
            }
            form.texts.entry(name.clone()).or_default().push(beginning(text.trim(), MAX_FIELD_CHARS));
        }
        form
    }

    /// The settings of a webhook that the form showed at first.
    pub(super) fn shown(&self) -> WebhookSettings {
        let shown = Some(self.first("shown")).filter(|text| text.len() <= MAX_SHOWN_BYTES);
        shown.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// In a form every field is given.
impl Source for FormFields {
    fn get(&self, field: &str) -> Checked<Option<Given<'_>>> {
        Ok(Some(Given::Form(self.all(field).collect())))
    }
}

/// The fields of a form that differ from what it showed at first, so that nobody undoes what somebody else has changed meanwhile.
/// A browser posts the entries of a list in the order of the page.
pub(super) struct Edited<'a> {
    form: &'a FormFields,
    shown: WebhookForm,
}

impl<'a> Edited<'a> {
    pub(super) fn of(form: &'a FormFields, shown: &WebhookSettings) -> Self {
        Self { form, shown: WebhookForm::of(shown) }
    }
}

impl Source for Edited<'_> {
    fn get(&self, field: &str) -> Checked<Option<Given<'_>>> {
        if field == headers::FIELD {
            return self.form.get(field);
        }
        let Some(shown) = self.shown.texts.get(field) else { return Ok(None) };
        let shown: BTreeSet<_> = shown.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        let posted: BTreeSet<_> = self.form.all(field).filter(|text| !text.is_empty()).collect();
        if shown == posted { Ok(None) } else { self.form.get(field) }
    }
}

/// What is wrong with the fields of a form, as many as an answer of the API lists. The log's form has names of its own.
pub(super) fn faults(violations: Vec<Violation>) -> Vec<FieldFault> {
    let fault = |wrong: Violation| {
        let field = match wrong.field.as_str() {
            "occurred_after" => "from".to_owned(),
            "occurred_before" => "until".to_owned(),
            _ => wrong.field,
        };
        FieldFault { field, message: wrong.message }
    };
    violations.into_iter().take(MAX_LISTED_VIOLATIONS).map(fault).collect()
}

pub(super) fn beginning(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
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
    Some((key, [TOKEN_PURPOSE, tenant.unwrap_or(admin.tenant).as_uuid().as_bytes()].concat()))
}

fn check(request: &HttpRequest, token: &str, tenant: Option<TenantId>) -> Result<(), ApiError> {
    let (key, text) = signed(request, tenant).ok_or(ApiError::StaleForm)?;
    let tag = hex::decode(token).map_err(|_| ApiError::StaleForm)?;
    hmac::verify(&key, &text, &tag).map_err(|_| ApiError::StaleForm)
}

impl FromRequest for FormFields {
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
            let body = json::read(request.headers(), payload, state.body_limit).await?;
            Ok(Self::parse(&body))
        })
    }
}

impl FromRequest for Form {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, fields) = (request.clone(), FormFields::from_request(request, payload));
        Box::pin(async move {
            let fields = fields.await?;
            check(&request, fields.first("token"), None)?;
            Ok(Self(fields))
        })
    }
}
