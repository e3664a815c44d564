//! Sessions that the business application knows. The service asks it with the caller's cookie.
//!
//! | the application | the caller |
//! |---|---|
//! | 200 with a session that has not expired | goes on as that session's user |
//! | 200 with a session that has expired; 401, 403, 404 | is not logged in (401) |
//! | anything else, or nothing in time | may or may not be logged in (503) |

use std::time::{Duration, Instant};

use egress::{EgressError, Internal, InternalAnswer, InternalConfig, InternalError};
use ledger::{Session, SessionHash};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use service_kit::{Settings, SettingsError};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{runtime::Handle, task::JoinError};
use uuid::Uuid;

use super::{cookie, recent::Recent, strangers::Strangers};
use crate::problem::ApiError;

/// How many confirmed sessions are remembered.
const SESSIONS: usize = 10_000;
/// How many look-ups of unknown sessions may be under way.
const STRANGERS: usize = 32;
/// The most characters of `user_id` and of `role`: both are kept for each confirmed session.
const LONGEST_MEMBER: usize = 255;
/// In bytes: no browser keeps a longer cookie.
const LONGEST_ID: usize = 4096;

/// The back end `introspection`.
pub(super) struct Introspection {
    application: Internal,
    /// The runtime that holds the connections. It is never a web worker's.
    runtime: Handle,
    believed_for: Duration,
    confirmed: Mutex<Recent<Confirmed>>,
    strangers: Strangers,
}

struct Confirmed {
    session: Session,
    until: Instant,
}

/// Why it is unknown whether the caller is logged in. It holds neither the cookie nor values of the answer.
#[derive(Debug, thiserror::Error)]
enum IntrospectionError {
    #[error("the business application did not answer")]
    NoAnswer(#[source] InternalError),
    #[error("the business application answered {0}")]
    Status(u16),
    #[error("the business application's answer cannot be used: {0}")]
    Malformed(&'static str),
    #[error("the question was abandoned")]
    Abandoned(#[source] JoinError),
}

/// The longest answer of the application, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

impl From<IntrospectionError> for ApiError {
    fn from(error: IntrospectionError) -> Self {
        Self::SessionUnknown(error.into())
    }
}

impl Introspection {
    /// Call it inside the runtime that will run the service.
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let config = InternalConfig {
            url: settings.introspection_url()?.to_string(),
            timeout: settings.api.introspection_timeout,
            extra_ca_pem: settings.egress.extra_ca_pem()?,
            user_agent: concat!("webhooks/", env!("CARGO_PKG_VERSION")).to_owned(),
            answer_limit: ANSWER_LIMIT,
        };
        let application = Internal::new(config).map_err(|error| match error {
            EgressError::Url => SettingsError::invalid("api.introspection_url", error),
            other => SettingsError::invalid("egress.extra_ca_file", other),
        })?;
        Ok(Self {
            application,
            runtime: Handle::current(),
            believed_for: settings.api.introspection_cache,
            confirmed: Mutex::new(Recent::new(SESSIONS)),
            strangers: Strangers::new(STRANGERS),
        })
    }

    /// The session with this id, if the application confirms it or did so within `api.introspection_cache`.
    pub(super) async fn find(&self, hash: &SessionHash, id: &str) -> Result<Option<Session>, ApiError> {
        // An id that no cookie can hold is not forwarded.
        if id.len() > LONGEST_ID || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(None);
        }
        if let Some(session) = self.remembered(hash, Instant::now()) {
            return Ok(Some(session));
        }
        let turn = self.strangers.turn(hash).await?;
        let asked = Instant::now();
        let (application, cookie) = (self.application.clone(), format!("{}={id}", cookie::NAME));
        // The look-up goes on when its caller goes away, so it keeps its turn.
        let asking = self.runtime.spawn(async move {
            let _turn = turn;
            application.get("cookie", &cookie).await
        });
        let answer = asking.await.map_err(IntrospectionError::Abandoned)?.map_err(IntrospectionError::NoAnswer)?;
        let found = read(&answer, OffsetDateTime::now_utc())?;
        self.strangers.answered(hash, found.is_some());
        let Some((session, left)) = found else { return Ok(None) };
        if !self.believed_for.is_zero() {
            let until = asked + left.min(self.believed_for);
            self.confirmed.lock().insert(hash.clone(), Confirmed { session: session.clone(), until });
        }
        Ok(Some(session))
    }

    fn remembered(&self, hash: &SessionHash, now: Instant) -> Option<Session> {
        let mut confirmed = self.confirmed.lock();
        let session = confirmed.get(hash).filter(|known| known.until > now).map(|known| known.session.clone());
        if session.is_none() {
            confirmed.remove(hash);
        }
        session
    }
}

/// The session in the application's answer and the time that it has left. `None` if it is unknown or expired.
fn read(answer: &InternalAnswer, now: OffsetDateTime) -> Result<Option<(Session, Duration)>, IntrospectionError> {
    match answer.status {
        200 => {}
        401 | 403 | 404 => return Ok(None),
        other => return Err(IntrospectionError::Status(other)),
    }
    let (session, expires_at) = parse(&answer.body).map_err(IntrospectionError::Malformed)?;
    let left = Duration::try_from(expires_at - now).ok().filter(|left| !left.is_zero());
    Ok(left.map(|left| (session, left)))
}

fn parse(body: &[u8]) -> Result<(Session, OffsetDateTime), &'static str> {
    let members: Map<String, Value> = serde_json::from_slice(body).map_err(|_| "it is not a JSON object")?;
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let tenant: Uuid = text("tenant_id").and_then(|id| id.parse().ok()).ok_or("tenant_id is not a UUID")?;
    let user = text("user_id").ok_or("user_id is not a string")?;
    let role = text("role").ok_or("role is not a string")?;
    if user.is_empty() || user.chars().any(char::is_control) {
        return Err("user_id is empty or has a control character");
    }
    if user.chars().count() > LONGEST_MEMBER {
        return Err("user_id is longer than 255 characters");
    }
    if role.chars().count() > LONGEST_MEMBER {
        return Err("role is longer than 255 characters");
    }
    let expires_at = text("expires_at").and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    let expires_at = expires_at.ok_or("expires_at is not a time of RFC 3339")?;
    Ok((Session { tenant: tenant.into(), user: user.to_owned(), role: role.to_owned() }, expires_at))
}

#[cfg(test)]
mod tests;
