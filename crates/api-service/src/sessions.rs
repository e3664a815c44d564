//! Authentication (specification, section 5.1): the session that a request names, the site that it comes from, and the
//! rate limit.

pub(crate) mod cookie;
pub(crate) mod cross_site;
mod introspection;
mod lookup_limit;
mod rate_limit;

use std::{sync::Arc, time::Duration};

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::Data,
};
use domain::TenantId;
use ledger::{Actor, CredentialHash, Ledger, Session};
use moka::{policy::EvictionPolicy, sync::Cache};
use service_kit::{Settings, SettingsError, connections, settings::SessionBackEnd};
use time::OffsetDateTime;
use url::Url;

pub(crate) use self::rate_limit::Target;
use self::{
    introspection::Introspection,
    lookup_limit::LookupLimit,
    rate_limit::{Allowance, RateLimit, TokenResult},
};
use crate::http::ApiError;

/// The role that may manage webhooks.
pub(crate) const ADMIN: &str = Session::ADMIN;

/// Unknown sessions may use one in this many look-up connections.
const UNKNOWN_SESSIONS_DIVISOR: usize = 2;

/// The maximum of confirmed sessions that are remembered, and of buckets of one kind.
const MAX_CACHED_SESSIONS: u64 = 10_000;
/// The maximum of a request's session ids that are looked up. No honest browser sends more.
const MAX_TRIED_IDS: usize = 3;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// What decides whether a request passes. Shared by all workers.
pub(crate) struct Authentication {
    sessions: Sessions,
    /// Confirmed sessions. Their tokens are taken before they are looked up again.
    known: Cache<CredentialHash, KnownSession>,
    rate_limit: Option<RateLimit>,
    public_url: Option<Url>,
}

/// A session that was confirmed before.
#[derive(Clone, PartialEq, Eq)]
struct KnownSession {
    tenant: TenantId,
    user: Arc<str>,
    is_admin: bool,
}

/// The id of the session that let a request pass: an extension of the request. Other ids among its cookies may have
/// been set by somebody else, so no secret may derive from them.
pub(crate) struct SessionId(String);

impl SessionId {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// The back ends that know sessions. Each finds the session of an id, unless it is unknown or expired.
enum Sessions {
    /// The table `admin_sessions`.
    Database(Ledger, LookupLimit),
    /// The business application.
    Introspection(Box<Introspection>),
    /// A fixture for tests without a database.
    #[cfg(test)]
    Known(std::collections::HashMap<&'static str, Session>),
}

impl Authentication {
    /// Call it inside the runtime that will run the service. The back end `database` gets `at_once` connections of its
    /// own, so a look-up waits for no other work. A look-up holds its connection for `lookup_timeout` at most, and waits half
    /// as long for its permit.
    pub(crate) fn new(
        settings: &Settings,
        ledger: &Ledger,
        at_once: usize,
        lookup_timeout: Duration,
    ) -> Result<Self, SettingsError> {
        let sessions = match settings.api.sessions {
            SessionBackEnd::Database => {
                let ledger = connections::part_of_ledger(ledger, at_once, lookup_timeout)?;
                Sessions::Database(ledger, LookupLimit::new(at_once / UNKNOWN_SESSIONS_DIVISOR, lookup_timeout / 2))
            }
            SessionBackEnd::Introspection => {
                Sessions::Introspection(Box::new(Introspection::new(settings, lookup_timeout / 2)?))
            }
        };
        let (rate_limit, public_url) = (RateLimit::new(&settings.api), settings.console.public_url.clone());
        Ok(Self { sessions, known: known(), rate_limit, public_url })
    }

    /// Knows these sessions and limits no rate.
    #[cfg(test)]
    pub(crate) fn knowing(sessions: [(&'static str, Session); 2]) -> Self {
        Self { sessions: Sessions::Known(sessions.into()), known: known(), rate_limit: None, public_url: None }
    }

    /// The session of an id, whatever its role. A look-up of an id that is not confirmed costs a token of that id.
    pub(crate) async fn session(&self, id: &str) -> Result<Option<Session>, ApiError> {
        let hash = CredentialHash::of(id);
        let known = self.known.get(&hash);
        if known.is_none() {
            self.pay(&mut None, |limit| limit.take_unconfirmed(&hash))?;
        }
        self.find(&hash, id, known).await
    }

    async fn find(
        &self,
        hash: &CredentialHash,
        id: &str,
        known: Option<KnownSession>,
    ) -> Result<Option<Session>, ApiError> {
        let found = self.sessions.find(hash, id, known.as_ref().map(|known| known.tenant)).await?;
        match found.as_ref().map(KnownSession::of) {
            Some(now) if known.as_ref() != Some(&now) => self.known.insert(hash.clone(), now),
            None if known.is_some() => self.known.invalidate(hash),
            _ => {}
        }
        Ok(found)
    }

    /// Finds the administrator who makes a request, and the session that shows it: the first one of an administrator
    /// among the cookies. If a look-up fails, the request does: the next cookie may be another user's. An id that is not
    /// confirmed and has no token left was looked up again and again: the next one may do.
    async fn administrator(
        &self,
        request: &HttpRequest,
        target: Target,
        allowance: &mut Option<Allowance>,
    ) -> Result<(Actor, SessionId), ApiError> {
        let mut ids = cookie::session_ids(request.headers()).take(MAX_TRIED_IDS).peekable();
        ids.peek().ok_or(ApiError::NotLoggedIn)?;
        // Another site's page must not spend tokens. A link to a page of the console may be in a mail.
        if target == Target::Api || !request.method().is_safe() {
            self.refuse_cross_site(request)?;
        }
        let (mut refusal, mut unpaid) = (ApiError::NotLoggedIn, None);
        for id in ids {
            let hash = CredentialHash::of(id);
            let known = self.known.get(&hash);
            if known.is_none()
                && let Err(error) = self.pay(allowance, |limit| limit.take_unconfirmed(&hash))
            {
                unpaid = Some((error, *allowance));
                continue;
            }
            match self.find_for_a_token((&hash, id), known, target, allowance).await? {
                Some(Session { tenant, user, role }) if role == ADMIN => {
                    return Ok((Actor { tenant, user }, SessionId(id.to_owned())));
                }
                Some(_) => refusal = ApiError::NotAnAdmin,
                None => {}
            }
        }
        if let Some((error, left)) = unpaid {
            (refusal, *allowance) = (error, left);
        }
        Err(refusal)
    }

    /// Refuses a request that another site's page makes.
    pub(crate) fn refuse_cross_site(&self, request: &HttpRequest) -> Result<(), ApiError> {
        cross_site::check(request.headers(), self.public_url.as_ref())
    }

    /// Finds a session, which costs a token: of a session that is confirmed before the look-up, else after it.
    async fn find_for_a_token(
        &self,
        (hash, id): (&CredentialHash, &str),
        known: Option<KnownSession>,
        target: Target,
        allowance: &mut Option<Allowance>,
    ) -> Result<Option<Session>, ApiError> {
        if let Some(known) = &known {
            self.pay(allowance, |limit| limit.take(target, hash, known))?;
        }
        let is_new = known.is_none();
        let found = self.find(hash, id, known).await?;
        if let Some(session) = found.as_ref().filter(|_| is_new) {
            self.pay(allowance, |limit| limit.take(target, hash, &KnownSession::of(session)))?;
        }
        Ok(found)
    }

    /// Takes a token. `allowance` is what is left then.
    fn pay(
        &self,
        allowance: &mut Option<Allowance>,
        take: impl FnOnce(&RateLimit) -> TokenResult,
    ) -> Result<(), ApiError> {
        let Some(limit) = &self.rate_limit else { return Ok(()) };
        let (left, token) = take(limit);
        *allowance = Some(left);
        token.map_err(ApiError::TooManyRequests)
    }
}

impl KnownSession {
    fn of(session: &Session) -> Self {
        Self { tenant: session.tenant, user: session.user.as_str().into(), is_admin: session.role == ADMIN }
    }
}

fn known() -> Cache<CredentialHash, KnownSession> {
    let least_used = EvictionPolicy::lru();
    Cache::builder().max_capacity(MAX_CACHED_SESSIONS).eviction_policy(least_used).time_to_idle(IDLE_TIMEOUT).build()
}

impl Sessions {
    /// Finds a session. `known`: its tenant, if this process has confirmed it before.
    async fn find(
        &self,
        hash: &CredentialHash,
        id: &str,
        known: Option<TenantId>,
    ) -> Result<Option<Session>, ApiError> {
        match self {
            Self::Database(ledger, strangers) => {
                let now = OffsetDateTime::now_utc();
                if let Some(tenant) = known {
                    return Ok(ledger.of_tenant(tenant).session_find(hash, now).await?);
                }
                let _permit = strangers.wait().await?;
                Ok(ledger.session_find(hash, now).await?)
            }
            Self::Introspection(application) => application.find(hash, id, known).await,
            #[cfg(test)]
            Self::Known(sessions) => Ok(sessions.get(id).cloned()),
        }
    }
}

/// Lets only administrators pass, within the rate limit, and no cross-site request.
pub(crate) async fn admins_only(
    authentication: Data<Authentication>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    admit(&authentication, Target::Api, request, next, ServiceRequest::error_response).await
}

/// Lets administrators pass to a target. The caller answers all others.
pub(crate) async fn admit(
    authentication: &Authentication,
    target: Target,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    refuse: impl FnOnce(ServiceRequest, ApiError) -> ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut allowance = None;
    let mut answered = match authentication.administrator(request.request(), target, &mut allowance).await {
        Ok((administrator, id)) => {
            request.extensions_mut().insert(administrator);
            request.extensions_mut().insert(id);
            next.call(request).await?.map_into_boxed_body()
        }
        Err(error) => refuse(request, error),
    };
    if let Some(allowance) = allowance {
        allowance.write(answered.headers_mut());
    }
    Ok(answered)
}

#[cfg(test)]
mod tests;
