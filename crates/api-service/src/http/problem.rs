//! Every error of the API, and what the client is told about it.

pub(crate) mod body;

use std::{error::Error as StdError, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{ALLOW, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
    },
};
use domain::{WebhookId, error_chain};
use ledger::{LedgerError, Refusal};

use super::violation::Violation;

/// The result of a function that answers a request.
pub(crate) type HandlerResult = Result<HttpResponse, ApiError>;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a request failed. The text is for the client, the source for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the cookie sessionid is missing, unknown or expired: log in at the business application, then try again")]
    NotLoggedIn,
    #[error(
        "the header Authorization has no valid key: the key is unknown, expired or revoked, or the header is not \
         Authorization: Bearer with one key. Look at the list of keys, and send a valid one; cookies do not count beside \
         this header"
    )]
    UnknownKey,
    #[error(
        "only an administrator's session may do this, and the request has the header Authorization: log in at the business \
         application, and send the request with the cookie sessionid and without that header"
    )]
    SessionRequired,
    #[error(
        "the session's user is not an administrator, and only administrators may manage webhooks: ask an administrator of your organization"
    )]
    NotAnAdmin,
    /// Holds a header's name, its value, and what it should be.
    #[error(
        "the header {0} is {1:?} and not {2}, as if another site's page had sent this request: send it from a page of \
         this service, or without a browser"
    )]
    CrossSite(&'static str, String, String),
    #[error(
        "this path or id does not exist, belongs to another tenant, or expired with the retention period: check the URL"
    )]
    NotFound,
    #[error(
        "your organization has no event with this id: the event has not arrived yet, or was published to a wrong exchange or routing key; \
         or the event was invalid, and operators find it by webhookctl rejected list; or no webhook was subscribed to the event when it \
         arrived: such events are not stored; or the event is older than the retention period; or the event belongs to another tenant; or too many events \
         have this id to search all of them"
    )]
    UnknownEvent,
    #[error("this path does not support the method: use {0}")]
    MethodNotAllowed(&'static str),
    #[error("the body did not arrive within {} seconds: send it again", .0.as_secs())]
    BodyTooSlow(Duration),
    #[error("your organization has {0} webhooks, the maximum: delete a webhook first")]
    TooManyWebhooks(u32),
    #[error(
        "your organization has deleted {0} webhooks whose logs are still kept, the maximum: register again in two hours, when those without deliveries are forgotten, or after the first of these logs have expired"
    )]
    TooManyDeleted(u32),
    #[error("your organization has {0} keys, the maximum: revoke a key that no program uses, such as an expired one")]
    TooManyKeys(u16),
    #[error("this form belongs to another session or organization, or was open for too long: load the page again")]
    StaleForm,
    #[error(
        "this form, or this Idempotency-Key, has already registered a webhook (its path is in the header Location), whose \
         secret is not shown again: keep that webhook, or delete it and register with a new key"
    )]
    RegisteredBefore(WebhookId),
    #[error("this form has already created a key: open the list of keys")]
    CreatedBefore,
    #[error("another webhook of your organization has this external_id: choose another one, or change that webhook")]
    ExternalIdTaken,
    #[error(
        "the webhook has been changed since its ETag in If-Match, and nothing was done: read it again, then decide"
    )]
    ChangedMeanwhile,
    #[error(
        "the delivery is older than the retention period, and cannot be sent again: publish the event again, with another event_id"
    )]
    TooOld,
    #[error(
        "the body has expired, and cannot be sent again: publish the event again, with another event_id and a new timestamp"
    )]
    BodyExpired,
    #[error("the delivery has had 1,000 attempts, the maximum: publish the event again, with another event_id")]
    TooOften,
    #[error(
        "the webhook's waiting deliveries are being cancelled, and deliveries that are sent again now would be too: try again when is_cancelling of the webhook is false"
    )]
    Cancelling,
    /// Holds the path of the running recovery.
    #[error(
        "a recovery of the webhook is already running, and a second one did not begin: wait until the running one has \
         finished (its path is in the header Location), then try again"
    )]
    Recovering(String),
    #[error("the webhook is paused: set is_active to true first")]
    WebhookInactive,
    #[error("the body is larger than {0} bytes, the maximum")]
    BodyTooLarge(usize),
    #[error("the body must be JSON: Content-Type application/json, in UTF-8, without Content-Encoding")]
    MediaType,
    #[error("the body is not valid JSON: {0}")]
    MalformedJson(serde_json::Error),
    #[error("the body did not arrive completely: send the request again")]
    IncompleteBody,
    #[error("the query string is longer than {0} bytes, the maximum")]
    QueryTooLong(usize),
    #[error("the query string has invalid parameters: errors lists each")]
    Parameters(Vec<Violation>),
    #[error("the request has invalid headers: errors lists each")]
    Headers(Vec<Violation>),
    #[error("the body has invalid fields: errors lists each")]
    Fields(Vec<Violation>),
    #[error(
        "the webhook has headers that this change cannot keep: name in headers each that errors lists, with its value, or \
         with null to remove it"
    )]
    HeadersRequired(Vec<Violation>),
    #[error("this session or key, or its organization, has made too many requests: try again in {} s", seconds(*.0))]
    TooManyRequests(Duration),
    #[error("the service is unavailable at the moment, and nothing was changed: try again in a few seconds")]
    Unavailable(#[source] LedgerError),
    #[error(
        "the database did not confirm the change in time, and the change may have been made: look at the webhook, or at the \
         list of webhooks or keys, before you try again. Delete a webhook that was registered without showing you its secret, \
         and revoke a key that was not shown"
    )]
    Unconfirmed(#[source] LedgerError),
    #[error(
        "this version of the service cannot read the webhook or delivery, which a later version has stored, and nothing was \
         changed: try again when the service has been upgraded"
    )]
    OfLaterVersion(#[source] LedgerError),
    #[error("the service is checking too many new sessions and keys at the moment: try again in a few seconds")]
    Crowded,
    #[error("another search of your organization, or those of others, are running: try again in a few seconds")]
    Searching,
    #[error("the service cannot check sessions at the moment: try again in a few seconds")]
    SessionUnknown(#[source] BoxError),
    #[error(
        "the service failed unexpectedly: report the request id to its operators, who find the cause in their logs"
    )]
    Unexpected(#[source] BoxError),
}

impl ApiError {
    pub(crate) fn unexpected(cause: impl Into<BoxError>) -> Self {
        Self::Unexpected(cause.into())
    }

    /// Converts the error of a call that changes something.
    pub(crate) fn of_change(error: LedgerError) -> Self {
        match error {
            error if error.is_unconfirmed() => Self::Unconfirmed(error),
            error if error.is_external_id_taken() => Self::ExternalIdTaken,
            error => error.into(),
        }
    }

    /// One violation, found after all fields were read.
    pub(crate) fn field(field: &str, code: &'static str, message: impl std::fmt::Display) -> Self {
        Self::Fields(vec![Violation::new(field, code, message)])
    }

    pub(crate) const fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotLoggedIn => (StatusCode::UNAUTHORIZED, "not_logged_in"),
            Self::UnknownKey => (StatusCode::UNAUTHORIZED, "unknown_key"),
            Self::SessionRequired => (StatusCode::FORBIDDEN, "session_required"),
            Self::TooManyKeys(_) => (StatusCode::CONFLICT, "too_many_keys"),
            Self::NotAnAdmin => (StatusCode::FORBIDDEN, "not_an_admin"),
            Self::CrossSite(..) => (StatusCode::FORBIDDEN, "cross_site"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::UnknownEvent => (StatusCode::NOT_FOUND, "unknown_event"),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::BodyTooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            Self::TooManyWebhooks(_) => (StatusCode::CONFLICT, "too_many_webhooks"),
            Self::TooManyDeleted(_) => (StatusCode::CONFLICT, "too_many_deleted_webhooks"),
            Self::StaleForm => (StatusCode::FORBIDDEN, "stale_form"),
            Self::RegisteredBefore(_) => (StatusCode::CONFLICT, "registered_before"),
            Self::CreatedBefore => (StatusCode::CONFLICT, "created_before"),
            Self::ExternalIdTaken => (StatusCode::CONFLICT, "external_id_taken"),
            Self::ChangedMeanwhile => (StatusCode::PRECONDITION_FAILED, "changed_meanwhile"),
            Self::TooOld => (StatusCode::CONFLICT, "too_old"),
            Self::BodyExpired => (StatusCode::CONFLICT, "body_expired"),
            Self::TooOften => (StatusCode::CONFLICT, "too_many_attempts"),
            Self::Cancelling => (StatusCode::CONFLICT, "cancelling"),
            Self::Recovering(_) => (StatusCode::CONFLICT, "recovering"),
            Self::WebhookInactive => (StatusCode::CONFLICT, "webhook_inactive"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::MalformedJson(_) => (StatusCode::BAD_REQUEST, "malformed_json"),
            Self::IncompleteBody => (StatusCode::BAD_REQUEST, "incomplete_body"),
            Self::QueryTooLong(_) => (StatusCode::URI_TOO_LONG, "query_too_long"),
            Self::Parameters(_) => (StatusCode::BAD_REQUEST, "invalid_parameters"),
            Self::Headers(_) => (StatusCode::BAD_REQUEST, "invalid_headers"),
            Self::Fields(_) => (StatusCode::UNPROCESSABLE_ENTITY, "validation_failed"),
            Self::HeadersRequired(_) => (StatusCode::UNPROCESSABLE_ENTITY, "headers_required"),
            Self::TooManyRequests(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::Unavailable(_) | Self::OfLaterVersion(_) | Self::SessionUnknown(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
            Self::Unconfirmed(_) => (StatusCode::SERVICE_UNAVAILABLE, "unconfirmed"),
            Self::Crowded | Self::Searching => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Unexpected(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    fn violations(&self) -> Option<&[Violation]> {
        match self {
            Self::Parameters(violations)
            | Self::Headers(violations)
            | Self::Fields(violations)
            | Self::HeadersRequired(violations) => Some(violations),
            _ => None,
        }
    }

    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::NotLoggedIn => Some((
                WWW_AUTHENTICATE,
                HeaderValue::from_static(
                    r#"Cookie realm="webhooks", cookie-name="sessionid", Bearer realm="webhooks""#,
                ),
            )),
            Self::UnknownKey => Some((WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="webhooks""#))),
            Self::RegisteredBefore(id) => {
                HeaderValue::try_from(format!("/api/v1/webhooks/{id}/")).ok().map(|path| (LOCATION, path))
            }
            Self::Recovering(path) => HeaderValue::try_from(path).ok().map(|path| (LOCATION, path)),
            Self::MethodNotAllowed(methods) => Some((ALLOW, HeaderValue::from_static(methods))),
            Self::TooManyRequests(wait) => Some((RETRY_AFTER, seconds(*wait).into())),
            Self::Unavailable(_)
            | Self::OfLaterVersion(_)
            | Self::SessionUnknown(_)
            | Self::Crowded
            | Self::Searching => Some((RETRY_AFTER, HeaderValue::from_static("5"))),
            _ => None,
        }
    }

    /// Logs the cause, which the client is not told. No other place does.
    pub(crate) fn log(&self) {
        match self {
            Self::Unavailable(cause) => tracing::warn!(error = error_chain(cause), "the database is away"),
            Self::OfLaterVersion(cause) => {
                tracing::warn!(error = error_chain(cause), "a row has a value of a later version");
            }
            Self::Unconfirmed(cause) => {
                tracing::warn!(error = error_chain(cause), "the database has not confirmed a change");
            }
            Self::SessionUnknown(cause) => {
                tracing::warn!(error = error_chain(cause.as_ref()), "a session cannot be looked up");
            }
            Self::Unexpected(cause) => tracing::error!(error = error_chain(cause.as_ref()), "unexpected error"),
            _ => {}
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl From<LedgerError> for ApiError {
    fn from(error: LedgerError) -> Self {
        match error {
            error if error.is_unavailable() => Self::Unavailable(error),
            error if error.is_of_later_version() => Self::OfLaterVersion(error),
            error => Self::unexpected(error),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::NotFound,
            Refusal::Exists(id) => Self::RegisteredBefore(id),
            Refusal::TooMany(most) => Self::TooManyWebhooks(most),
            Refusal::TooManyDeleted(most) => Self::TooManyDeleted(most),
            Refusal::KeyExists => Self::CreatedBefore,
            Refusal::TooManyKeys(most) => Self::TooManyKeys(most),
            Refusal::Paused => Self::WebhookInactive,
            Refusal::Cancelling => Self::Cancelling,
            Refusal::TooOld => Self::TooOld,
            Refusal::BodyExpired => Self::BodyExpired,
            Refusal::TooOften => Self::TooOften,
        }
    }
}

/// The middleware adds the body, because it knows the request's id.
impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.kind().0
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::new(self.status_code());
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
