//! Sessions: who is calling (specification, section 5.1).

mod cookie;
mod introspection;
mod strangers;

use std::time::Instant;

use actix_web::{
    Error, HttpMessage,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header::HeaderMap,
    middleware::Next,
    web::Data,
};
use domain::TenantId;
use ledger::{Ledger, Session, SessionHash};
use service_kit::{Settings, SettingsError, connections, settings::SessionBackEnd};
use time::OffsetDateTime;

use self::introspection::Introspection;
pub(crate) use self::introspection::IntrospectionError;
use self::strangers::{Crowded, Strangers};
use crate::{api::Api, app::ONE_REQUEST, problem::ApiError};

/// The role that may manage webhooks.
const ADMIN: &str = "admin";

/// Unknown sessions may use one in this many look-up connections.
const STRANGERS_PART: usize = 2;

/// The back ends that know sessions. Each finds the session of an id, unless it is unknown or expired.
pub(crate) enum Sessions {
    /// The table `admin_sessions`.
    Database(Ledger, Strangers),
    /// The business application.
    Introspection(Box<Introspection>),
    /// A fixture for tests without a database.
    #[cfg(test)]
    Known(std::collections::HashMap<&'static str, Session>),
}

impl Sessions {
    /// Makes the back end that the settings choose. Call it inside the runtime that will run the service. `Database`
    /// gets `at_once` connections of its own, so a look-up waits for no other work.
    pub(crate) fn new(settings: &Settings, ledger: &Ledger, at_once: usize) -> Result<Self, SettingsError> {
        match settings.api.sessions {
            SessionBackEnd::Database => {
                let ledger = connections::part_of_ledger(ledger, at_once, ONE_REQUEST)?;
                Ok(Self::Database(ledger, Strangers::new(at_once / STRANGERS_PART)))
            }
            SessionBackEnd::Introspection => Ok(Self::Introspection(Box::new(Introspection::new(settings)?))),
        }
    }

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

impl From<Crowded> for ApiError {
    fn from(Crowded: Crowded) -> Self {
        Self::Crowded
    }
}

/// Proof that an administrator is calling. Handlers get the tenant only from here.
#[derive(Clone, Copy)]
pub(crate) struct Administrator {
    pub(crate) tenant: TenantId,
}

/// Lets only administrators pass, within the rate limit.
pub(crate) async fn admins_only(
    api: Data<Api>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match authenticate(&api, request.headers()).await {
        Ok(administrator) => {
            request.extensions_mut().insert(administrator);
            next.call(request).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(error) => Ok(request.error_response(error)),
    }
}

async fn authenticate(api: &Api, headers: &HeaderMap) -> Result<Administrator, ApiError> {
    let id = cookie::session_id(headers).ok_or(ApiError::NotLoggedIn)?;
    let hash = SessionHash::of(id);
    let session = api.sessions.find(&hash, id).await?.ok_or(ApiError::NotLoggedIn)?;
    if session.role != ADMIN {
        return Err(ApiError::NotAnAdmin);
    }
    if let Some(limit) = &api.rate_limit {
        limit.take(&hash, Instant::now()).map_err(ApiError::TooManyRequests)?;
    }
    Ok(Administrator { tenant: session.tenant })
}
