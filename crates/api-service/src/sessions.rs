//! Authentication (specification, section 5.1): the session or the key that a request shows, the site that it comes from,
//! and the rate limit.

pub(crate) mod cookie;
pub(crate) mod cross_site;
mod introspection;
mod key;
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
use domain::{TenantId, error_chain};
use ledger::{Actor, ApiKey, CredentialHash, Ledger, Session};
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

/// Unknown sessions and keys may use one in this many look-up connections.
const UNKNOWN_SESSIONS_DIVISOR: usize = 2;

/// The maximum of confirmed sessions and keys that are remembered, and of buckets of one kind.
const MAX_CACHED_SESSIONS: u64 = 10_000;
/// The maximum of a request's session ids that are looked up. No honest browser sends more.
const MAX_TRIED_IDS: usize = 3;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// What decides whether a request passes. Shared by all workers.
pub(crate) struct Authentication {
    back_end: BackEnd,
    /// Confirmed sessions and keys. Their tokens are taken before they are looked up again.
    known: Cache<CredentialHash, KnownSession>,
    rate_limit: Option<RateLimit>,
    public_url: Option<Url>,
}

/// A session or a key that was confirmed before.
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

/// A kind of proof that a request carries.
#[derive(Clone, Copy)]
enum Credential<'a> {
    /// The id of a session.
    Session(&'a str),
    Key,
}

/// The session or key of a credential that is neither unknown nor expired.
#[derive(Clone)]
enum Found {
    Session(Session),
    Key(ApiKey),
}

/// The session or key that let a request pass.
enum Passed {
    Session(SessionId),
    Key(ApiKey),
}

/// Knows sessions and keys. Keys are in the ledger.
enum BackEnd {
    /// Sessions are in the ledger too: in the table `admin_sessions`.
    Database(Stored),
    /// The business application knows the sessions.
    Introspection(Stored, Box<Introspection>),
    /// A fixture for tests without a database.
    #[cfg(test)]
    Known(std::collections::HashMap<CredentialHash, Found>),
}

/// The look-ups in the ledger.
struct Stored {
    ledger: Ledger,
    of_unknown: LookupLimit,
}

impl Authentication {
    /// Call it inside the runtime that will run the service. Look-ups in the ledger get `at_once` connections of their
    /// own, so a look-up waits for no other work. A look-up holds its connection for `lookup_timeout` at most, and waits half
    /// as long for its permit.
    pub(crate) fn new(
        settings: &Settings,
        ledger: &Ledger,
        at_once: usize,
        lookup_timeout: Duration,
    ) -> Result<Self, SettingsError> {
        let stored = Stored {
            ledger: connections::part_of_ledger(ledger, at_once, lookup_timeout)?,
            of_unknown: LookupLimit::new(at_once / UNKNOWN_SESSIONS_DIVISOR, lookup_timeout / 2),
        };
        let back_end = match settings.api.sessions {
            SessionBackEnd::Database => BackEnd::Database(stored),
            SessionBackEnd::Introspection => {
                BackEnd::Introspection(stored, Box::new(Introspection::new(settings, lookup_timeout / 2)?))
            }
        };
        let (rate_limit, public_url) = (RateLimit::new(&settings.api), settings.console.public_url.clone());
        Ok(Self { back_end, known: known(), rate_limit, public_url })
    }

    /// Knows these sessions, and keys that begin with `wk_`. Limits no rate.
    #[cfg(test)]
    pub(crate) fn knowing(sessions: [(&'static str, Session); 3]) -> Self {
        Self { back_end: tests::fixture(sessions), known: known(), rate_limit: None, public_url: None }
    }

    /// The session of an id, whatever its role. A look-up of an id that is not confirmed costs a token of that id.
    pub(crate) async fn session(&self, id: &str) -> Result<Option<Session>, ApiError> {
        let hash = CredentialHash::of(id);
        let known = self.known.get(&hash);
        if known.is_none() {
            self.pay(&mut None, |limit| limit.take_unconfirmed(&hash))?;
        }
        Ok(match self.find(&hash, Credential::Session(id), known).await? {
            Some(Found::Session(session)) => Some(session),
            Some(Found::Key(_)) | None => None,
        })
    }

    async fn find(
        &self,
        hash: &CredentialHash,
        credential: Credential<'_>,
        known: Option<KnownSession>,
    ) -> Result<Option<Found>, ApiError> {
        let found = self.back_end.find(hash, credential, known.as_ref().map(|known| known.tenant)).await?;
        match found.as_ref().map(KnownSession::of) {
            Some(now) if known.as_ref() != Some(&now) => self.known.insert(hash.clone(), now),
            None if known.is_some() => self.known.invalidate(hash),
            _ => {}
        }
        Ok(found)
    }

    /// Finds the caller: the program of the request's key, or the administrator of the first such session among the
    /// cookies. If a look-up fails, the request does: the next cookie may be another user's. An id that is not confirmed
    /// and has no token left was looked up again and again: the next one may do.
    async fn administrator(
        &self,
        request: &HttpRequest,
        target: Target,
        allowance: &mut Option<Allowance>,
    ) -> Result<(Actor, Passed), ApiError> {
        if let Some(key) = key::of(request.headers()) {
            return match target {
                Target::Api => self.program(key?, allowance).await,
                Target::Console => Err(ApiError::SessionRequired),
            };
        }
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
            match self.find_for_a_token((&hash, Credential::Session(id)), known, target, allowance).await? {
                Some(Found::Session(Session { tenant, user, role })) if role == ADMIN => {
                    return Ok((Actor { tenant, user }, Passed::Session(SessionId(id.to_owned()))));
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

    /// Finds the program that makes a request, by its key. Another site's page cannot know the key, so the site does not
    /// matter.
    async fn program(&self, key: &str, allowance: &mut Option<Allowance>) -> Result<(Actor, Passed), ApiError> {
        let hash = CredentialHash::of(key);
        let known = self.known.get(&hash);
        if known.is_none() {
            self.pay(allowance, |limit| limit.take_unconfirmed(&hash))?;
        }
        match self.find_for_a_token((&hash, Credential::Key), known, Target::Api, allowance).await? {
            Some(Found::Key(key)) => Ok((Actor { tenant: key.tenant, user: key.actor() }, Passed::Key(key))),
            Some(Found::Session(_)) | None => Err(ApiError::UnknownKey),
        }
    }

    /// Notes in the background that a program used its key today, unless that is known.
    fn note_use(&self, key: &ApiKey) {
        let today = OffsetDateTime::now_utc().date();
        let Some(stored) = self.back_end.stored().filter(|_| key.last_used_on.is_none_or(|day| day < today)) else {
            return;
        };
        let (ledger, id) = (stored.ledger.of_tenant(key.tenant), key.id);
        actix_web::rt::spawn(async move {
            if let Err(error) = ledger.key_used(id, today).await {
                tracing::warn!(key = %id, error = error_chain(&error), "the use of a key could not be noted");
            }
        });
    }

    /// Refuses a request that another site's page makes.
    pub(crate) fn refuse_cross_site(&self, request: &HttpRequest) -> Result<(), ApiError> {
        cross_site::check(request.headers(), self.public_url.as_ref())
    }

    /// Finds a session or a key, which costs a token of it: before the look-up if it is confirmed, else after it.
    async fn find_for_a_token(
        &self,
        (hash, credential): (&CredentialHash, Credential<'_>),
        known: Option<KnownSession>,
        target: Target,
        allowance: &mut Option<Allowance>,
    ) -> Result<Option<Found>, ApiError> {
        if let Some(known) = &known {
            self.pay(allowance, |limit| limit.take(target, hash, known))?;
        }
        let is_new = known.is_none();
        let found = self.find(hash, credential, known).await?;
        if let Some(found) = found.as_ref().filter(|_| is_new) {
            self.pay(allowance, |limit| limit.take(target, hash, &KnownSession::of(found)))?;
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
    fn of(found: &Found) -> Self {
        match found {
            Found::Session(Session { tenant, user, role }) => {
                Self { tenant: *tenant, user: user.as_str().into(), is_admin: role == ADMIN }
            }
            Found::Key(key) => Self { tenant: key.tenant, user: key.actor().into(), is_admin: true },
        }
    }
}

fn known() -> Cache<CredentialHash, KnownSession> {
    let least_used = EvictionPolicy::lru();
    Cache::builder().max_capacity(MAX_CACHED_SESSIONS).eviction_policy(least_used).time_to_idle(IDLE_TIMEOUT).build()
}

impl BackEnd {
    /// Finds what belongs to a credential. `known`: its tenant, if this process has confirmed it before.
    async fn find(
        &self,
        hash: &CredentialHash,
        credential: Credential<'_>,
        known: Option<TenantId>,
    ) -> Result<Option<Found>, ApiError> {
        match (self, credential) {
            (Self::Introspection(_, application), Credential::Session(id)) => {
                Ok(application.find(hash, id, known).await?.map(Found::Session))
            }
            (Self::Database(stored) | Self::Introspection(stored, _), credential) => {
                stored.find(hash, credential, known).await
            }
            #[cfg(test)]
            (Self::Known(all), _) => Ok(all.get(hash).cloned()),
        }
    }

    const fn stored(&self) -> Option<&Stored> {
        match self {
            Self::Database(stored) | Self::Introspection(stored, _) => Some(stored),
            #[cfg(test)]
            Self::Known(_) => None,
        }
    }
}

impl Stored {
    async fn find(
        &self,
        hash: &CredentialHash,
        credential: Credential<'_>,
        known: Option<TenantId>,
    ) -> Result<Option<Found>, ApiError> {
        let now = OffsetDateTime::now_utc();
        let (ledger, _permit) = match known {
            Some(tenant) => (self.ledger.of_tenant(tenant), None),
            None => (self.ledger.clone(), Some(self.of_unknown.wait().await?)),
        };
        Ok(match credential {
            Credential::Session(_) => ledger.session_find(hash, now).await?.map(Found::Session),
            Credential::Key => ledger.key_find(hash, now).await?.map(Found::Key),
        })
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
        Ok((administrator, passed)) => {
            request.extensions_mut().insert(administrator);
            match passed {
                Passed::Session(id) => {
                    request.extensions_mut().insert(id);
                    next.call(request).await?.map_into_boxed_body()
                }
                Passed::Key(key) => {
                    let answered = next.call(request).await?.map_into_boxed_body();
                    authentication.note_use(&key);
                    answered
                }
            }
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
