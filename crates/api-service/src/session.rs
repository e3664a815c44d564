//! Who is calling (specification, section 5.1).

mod cookie;

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
use time::OffsetDateTime;

use crate::{api::Api, problem::ApiError};

/// The role that may manage webhooks.
const ADMIN: &str = "admin";

/// Where sessions are known. Each back end answers with the session of an id, if there is one that has not expired.
pub(crate) enum Sessions {
    /// The table `admin_sessions`.
    Database(Ledger),
    /// Tests of what needs no database.
    #[cfg(test)]
    Known(std::collections::HashMap<&'static str, Session>),
}

impl Sessions {
    async fn find(&self, id: &str) -> Result<Option<Session>, ApiError> {
        match self {
            Self::Database(ledger) => Ok(ledger.session_find(&SessionHash::of(id), OffsetDateTime::now_utc()).await?),
            #[cfg(test)]
            Self::Known(sessions) => Ok(sessions.get(id).cloned()),
        }
    }
}

/// Proof that an administrator is calling. Handlers have their tenant from nowhere else.
#[derive(Clone, Copy)]
pub(crate) struct Administrator {
    pub(crate) tenant: TenantId,
}

/// Lets administrators pass.
pub(crate) async fn admins_only(
    api: Data<Api>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match authenticate(&api.sessions, request.headers()).await {
        Ok(administrator) => {
            request.extensions_mut().insert(administrator);
            next.call(request).await.map(ServiceResponse::map_into_boxed_body)
        }
        Err(error) => Ok(request.error_response(error)),
    }
}

async fn authenticate(sessions: &Sessions, headers: &HeaderMap) -> Result<Administrator, ApiError> {
    let id = cookie::session_id(headers).ok_or(ApiError::NotLoggedIn)?;
    let session = sessions.find(id).await?.ok_or(ApiError::NotLoggedIn)?;
    if session.role == ADMIN { Ok(Administrator { tenant: session.tenant }) } else { Err(ApiError::NotAnAdmin) }
}
