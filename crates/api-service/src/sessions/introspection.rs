//! Sessions that the business application knows. The service asks it with the caller's cookie.
//!
//! | the application | the caller |
//! |---|---|
//! | 200 with a session that has not expired | goes on as that session's user |
//! | 200 with a session that has expired; 401, 403, 404 | is not logged in (401) |
//! | anything else, or nothing in time | may or may not be logged in (503) |

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::TenantId;
use egress::{EgressError, Internal, InternalAnswer, InternalConfig, InternalError};
use ledger::{CredentialHash, Session};
use moka::{Expiry, future::Cache, sync};
use serde_json::{Map, Value};
use service_kit::{Settings, SettingsError};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::{MAX_CACHED_SESSIONS, cookie, lookup_limit::LookupLimit};
use crate::http::ApiError;

/// The maximum of questions under way, of those about unknown sessions, and of those about the known sessions of a tenant.
const MAX_REQUESTS: usize = 128;
const MAX_UNKNOWN_SESSIONS: usize = 32;
const MAX_REQUESTS_PER_TENANT: usize = 16;
/// Tenants whose questions are counted.
const MAX_COUNTED_TENANTS: u64 = 1_000;
/// The most characters of `user_id` and of `role`: both are kept for each confirmed session.
const MAX_MEMBER_CHARS: usize = 255;
/// In bytes: no browser keeps a longer cookie.
const MAX_ID_BYTES: usize = 4096;

/// The back end `introspection`.
#[derive(Clone)]
pub(super) struct Introspection {
    application: Internal,
    /// The runtime that holds the connections. It is never a web worker's.
    runtime: Handle,
    cache_time: Duration,
    confirmed: Cache<CredentialHash, ConfirmedSession>,
    all: LookupLimit,
    of_unknown: LookupLimit,
    of_tenants: sync::Cache<TenantId, LookupLimit>,
    wait_timeout: Duration,
}

#[derive(Clone)]
struct ConfirmedSession {
    session: Session,
    until: Instant,
}

/// A confirmation lasts until its time.
struct ConfirmedUntil;

impl Expiry<CredentialHash, ConfirmedSession> for ConfirmedUntil {
    fn expire_after_create(&self, _: &CredentialHash, confirmed: &ConfirmedSession, now: Instant) -> Option<Duration> {
        Some(confirmed.until.saturating_duration_since(now))
    }
}

/// Why a look-up confirms no session.
#[derive(Debug, thiserror::Error)]
enum LookupFailure {
    #[error("the session is unknown or has expired")]
    Unknown,
    #[error("too many look-ups are under way")]
    Crowded,
    #[error(transparent)]
    Failed(IntrospectionError),
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
}

/// The longest answer of the application, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

impl Introspection {
    /// Call it inside the runtime that will run the service. A look-up waits for its permit for `wait_timeout` at most.
    pub(super) fn new(settings: &Settings, wait_timeout: Duration) -> Result<Self, SettingsError> {
        let config = InternalConfig {
            url: settings.introspection_url()?.to_string(),
            timeout: settings.api.introspection_timeout,
            extra_ca_pem: settings.egress.extra_ca_pem()?,
            user_agent: concat!("webhooks/", env!("CARGO_PKG_VERSION")).to_owned(),
            answer_limit: MAX_ANSWER_BYTES,
        };
        let application = Internal::new(config).map_err(|error| match error {
            EgressError::Url => SettingsError::invalid("api.introspection_url", error),
            other => SettingsError::invalid("egress.extra_ca_file", other),
        })?;
        Ok(Self {
            application,
            runtime: Handle::current(),
            cache_time: settings.api.introspection_cache,
            confirmed: Cache::builder().max_capacity(MAX_CACHED_SESSIONS).expire_after(ConfirmedUntil).build(),
            all: LookupLimit::new(MAX_REQUESTS, wait_timeout),
            of_unknown: LookupLimit::new(MAX_UNKNOWN_SESSIONS, wait_timeout),
            of_tenants: sync::Cache::new(MAX_COUNTED_TENANTS),
            wait_timeout,
        })
    }

    /// The session with this id, if the application confirms it or did so within `api.introspection_cache`. One question
    /// is asked for all requests of a session that come meanwhile, unless every request has to ask. `tenant`: of a session
    /// that was confirmed before.
    pub(super) async fn find(
        &self,
        hash: &CredentialHash,
        id: &str,
        tenant: Option<TenantId>,
    ) -> Result<Option<Session>, ApiError> {
        // An id that no cookie can hold is not forwarded.
        if id.len() > MAX_ID_BYTES || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(None);
        }
        let (this, hash, id) = (self.clone(), hash.clone(), id.to_owned());
        // The question continues when its caller goes away, so that nobody asks the same meanwhile.
        let asking = self.runtime.spawn(async move {
            match this.cache_time.is_zero() {
                true => this.ask(&id, tenant).await.map_err(Arc::new),
                false => this.confirmed.try_get_with(hash, this.ask(&id, tenant)).await,
            }
        });
        match asking.await {
            Ok(Ok(confirmed)) => Ok(Some(confirmed.session)),
            Ok(Err(error)) => match &*error {
                LookupFailure::Unknown => Ok(None),
                LookupFailure::Crowded => Err(ApiError::Crowded),
                LookupFailure::Failed(_) => Err(ApiError::SessionUnknown(error.into())),
            },
            Err(died) => Err(ApiError::SessionUnknown(died.into())),
        }
    }

    async fn ask(&self, id: &str, tenant: Option<TenantId>) -> Result<ConfirmedSession, LookupFailure> {
        let own = match tenant {
            Some(tenant) => {
                self.of_tenants.get_with(tenant, || LookupLimit::new(MAX_REQUESTS_PER_TENANT, self.wait_timeout))
            }
            None => self.of_unknown.clone(),
        };
        let crowded = |_| LookupFailure::Crowded;
        let _own = own.wait().await.map_err(crowded)?;
        let _permit = self.all.wait().await.map_err(crowded)?;
        let asked = Instant::now();
        let answer = self.application.get("cookie", &format!("{}={id}", cookie::COOKIE_NAME)).await;
        let found = answer.map_err(IntrospectionError::NoAnswer).and_then(|one| read(&one, OffsetDateTime::now_utc()));
        let (session, left) = found.map_err(LookupFailure::Failed)?.ok_or(LookupFailure::Unknown)?;
        Ok(ConfirmedSession { session, until: asked + left.min(self.cache_time) })
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
    if user.chars().count() > MAX_MEMBER_CHARS {
        return Err("user_id is longer than 255 characters");
    }
    if role.chars().count() > MAX_MEMBER_CHARS {
        return Err("role is longer than 255 characters");
    }
    let expires_at = text("expires_at").and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    let expires_at = expires_at.ok_or("expires_at is not a time of RFC 3339")?;
    Ok((Session { tenant: tenant.into(), user: user.to_owned(), role: role.to_owned() }, expires_at))
}

#[cfg(test)]
mod tests;
