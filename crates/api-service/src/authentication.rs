//! Authentication: who is calling (specification, section 5.1), from which site, how often.

pub(crate) mod cookie;
mod cross_site;
mod introspection;
mod rate_limit;
mod recent;
mod strangers;

use std::time::{Duration, Instant};

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::Data,
};
use ledger::{Actor, Ledger, Session, SessionHash};
use service_kit::{Settings, SettingsError, connections, settings::SessionBackEnd};
use time::OffsetDateTime;

use self::{introspection::Introspection, rate_limit::RateLimit, strangers::Strangers};
use crate::problem::ApiError;

/// The role that may manage webhooks.
pub(crate) const ADMIN: &str = "admin";

/// Unknown sessions may use one in this many look-up connections.
const STRANGERS_PART: usize = 2;

/// What decides whether a request passes. Shared by all workers.
pub(crate) struct Authentication {
    sessions: Sessions,
    rate_limit: Option<RateLimit>,
}

/// The back ends that know sessions. Each finds the session of an id, unless it is unknown or expired.
enum Sessions {
    /// The table `admin_sessions`.
    Database(Ledger, Strangers),
    /// The business application.
    Introspection(Box<Introspection>),
    /// A fixture for tests without a database.
    #[cfg(test)]
    Known(std::collections::HashMap<&'static str, Session>),
}

impl Authentication {
    /// Call it inside the runtime that will run the service. The back end `database` gets `at_once` connections of its
    /// own, so a look-up waits for no other work. Each holds its connection for `patience` at most.
    pub(crate) fn new(
        settings: &Settings,
        ledger: &Ledger,
        at_once: usize,
        patience: Duration,
    ) -> Result<Self, SettingsError> {
        let sessions = match settings.api.sessions {
            SessionBackEnd::Database => {
                let ledger = connections::part_of_ledger(ledger, at_once, patience)?;
                Sessions::Database(ledger, Strangers::new(at_once / STRANGERS_PART))
            }
            SessionBackEnd::Introspection => Sessions::Introspection(Box::new(Introspection::new(settings)?)),
        };
        Ok(Self { sessions, rate_limit: RateLimit::new(&settings.api) })
    }

    /// Knows these sessions and limits no rate.
    #[cfg(test)]
    pub(crate) fn knowing(sessions: [(&'static str, Session); 2]) -> Self {
        Self { sessions: Sessions::Known(sessions.into()), rate_limit: None }
    }

    /// The session of an id, whatever its role.
    pub(crate) async fn session(&self, id: &str) -> Result<Option<Session>, ApiError> {
        self.sessions.find(&SessionHash::of(id), id).await
    }

    async fn administrator(&self, request: &HttpRequest) -> Result<Actor, ApiError> {
        let id = cookie::session_id(request.headers()).ok_or(ApiError::NotLoggedIn)?;
        let hash = SessionHash::of(id);
        let session = self.sessions.find(&hash, id).await?.ok_or(ApiError::NotLoggedIn)?;
        if session.role != ADMIN {
            return Err(ApiError::NotAnAdmin);
        }
        if let Some(limit) = &self.rate_limit {
            limit.take(&hash, Instant::now()).map_err(ApiError::TooManyRequests)?;
        }
        if !request.method().is_safe() {
            cross_site::check(request.headers())?;
        }
        Ok(Actor { tenant: session.tenant, user: session.user })
    }
}

impl Sessions {
    async fn find(&self, hash: &SessionHash, id: &str) -> Result<Option<Session>, ApiError> {
        match self {
            Self::Database(ledger, strangers) => {
                let _turn = strangers.turn(hash).await?;
                let session = ledger.session_find(hash, OffsetDateTime::now_utc()).await?;
                strangers.answered(hash, session.is_some());
                Ok(session)
            }
            Self::Introspection(application) => application.find(hash, id).await,
            #[cfg(test)]
            Self::Known(sessions) => Ok(sessions.get(id).cloned()),
        }
    }
}

/// The session id of a request.
pub(crate) fn session_id(request: &HttpRequest) -> Option<&str> {
    cookie::session_id(request.headers())
}

/// Refuses a write that another site's page makes.
pub(crate) fn refuse_cross_site(request: &HttpRequest) -> Result<(), ApiError> {
    cross_site::check(request.headers())
}

/// Lets only administrators pass, within the rate limit, and no cross-site write.
pub(crate) async fn admins_only(
    authentication: Data<Authentication>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    admit(&authentication, request, next, ServiceRequest::error_response).await
}

/// The same with another answer to who does not pass.
pub(crate) async fn admit(
    authentication: &Authentication,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
    refuse: impl FnOnce(ServiceRequest, ApiError) -> ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match authentication.administrator(request.request()).await {
        Ok(administrator) => {
            request.extensions_mut().insert(administrator);
            next.call(request).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(error) => Ok(refuse(request, error)),
    }
}
