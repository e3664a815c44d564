//! Who may see the console. The business application logs users in; without its address, for development, the console
//! does so itself, by a session's id or by a code that works once.

use actix_web::{
    Error, HttpRequest, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{LOCATION, SET_COOKIE},
    },
    middleware::Next,
    web::Data,
};
use console::{Login, Paths};
use ledger::{CredentialHash, NewSession, Session};
use time::{Duration, OffsetDateTime};
use url::form_urlencoded;

use super::{FormFields, html, refresh::is_refresh, see_other};
use crate::{
    http::{ApiError, HandlerResult, list::MAX_QUERY_BYTES},
    sessions::{self, ADMIN, Authentication, Target, cookie},
    state::State,
};

/// The longest code, and the longest path of a page with its query string: pages take no longer one.
const MAX_CODE_BYTES: usize = 256;
const MAX_PATH_BYTES: usize = MAX_QUERY_BYTES + 256;

/// How long a session lasts that a code began.
const SESSION_DURATION: Duration = Duration::hours(12);

/// Lets only administrators pass. Unauthenticated requests are redirected to the log-in, except those of a form, which
/// would be lost, and of a refresh, to which a redirect would not show its reason.
pub(super) async fn administrators_only(
    authentication: Data<Authentication>,
    state: Data<State>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let refuse = |request: ServiceRequest, error| match error {
        ApiError::NotLoggedIn if request.method().is_safe() && !is_refresh(request.request()) => {
            let path = request.uri().path_and_query().map_or(Paths::HOME, |path| path.as_str());
            let address = log_in_at(&state, path);
            request.into_response(see_other(&address))
        }
        error => request.error_response(error),
    };
    sessions::admit(&authentication, Target::Console, request, next, refuse).await
}

/// Where to log in, with the way back.
fn log_in_at(state: &State, path: &str) -> String {
    let path = if path.len() > MAX_PATH_BYTES { Paths::HOME } else { path };
    let Ok(Some((login, public))) = state.console.log_in() else {
        let next: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
        return format!("{}?next={next}", Paths::LOG_IN);
    };
    let mut login = login.clone();
    login.query_pairs_mut().append_pair("next", &format!("{}{path}", public.origin().ascii_serialization()));
    login.into()
}

/// A page of the console, or its first one: whoever wrote the address of the log-in leads nobody elsewhere.
fn page_of_console(next: &str) -> &str {
    let is_one = next.len() <= MAX_PATH_BYTES
        && next.starts_with(Paths::HOME)
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_one { next } else { Paths::HOME }
}

/// The page that takes a session's id, or a code.
pub(super) async fn page(state: Data<State>, request: HttpRequest) -> HttpResponse {
    if state.console.login_url.is_some() {
        return see_other(&log_in_at(&state, Paths::HOME));
    }
    let query = form_urlencoded::parse(request.query_string().as_bytes());
    let first = |wanted| query.clone().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let (code, next) = (first("code").filter(|code| code.len() <= MAX_CODE_BYTES), first("next").unwrap_or_default());
    html(StatusCode::OK, Login { code: code.as_deref(), fault: None, next: page_of_console(&next) }.render())
}

/// Logs in: sets the cookie of a session that is given, or of a new one for a code.
pub(super) async fn log_in(
    state: Data<State>,
    authentication: Data<Authentication>,
    request: HttpRequest,
    fields: FormFields,
) -> HandlerResult {
    authentication.refuse_cross_site(&request)?;
    if state.console.login_url.is_some() {
        return Err(ApiError::NotFound);
    }
    let (code, next) = (fields.first("code"), page_of_console(fields.first("next")));
    let id = if code.is_empty() {
        let id = fields.first("session");
        authentication.session(id).await?.filter(|session| session.role == ADMIN).map(|_| id.to_owned())
    } else {
        begun(&state, &authentication, code).await?
    };
    let Some(id) = id.filter(|id| id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')) else {
        let fault = if code.is_empty() {
            "There is no such session of an administrator, or it has ended."
        } else {
            "This link was used before, or has expired. Make a new one with webhookctl session link."
        };
        return Ok(html(StatusCode::FORBIDDEN, Login { code: None, fault: Some(fault), next }.render()));
    };
    Ok(with_cookie(&state, &id, SESSION_DURATION, next))
}

/// The id of a new session for a code that has not been used.
async fn begun(state: &State, authentication: &Authentication, code: &str) -> Result<Option<String>, ApiError> {
    let Some(session) = authentication.session(code).await?.filter(|session| session.role == Session::LOGIN_CODE)
    else {
        return Ok(None);
    };
    let session = Session { role: ADMIN.to_owned(), ..session };
    let (id, new) = NewSession::begin(session, OffsetDateTime::now_utc() + SESSION_DURATION)?;
    // Of two requests with one code, one begins a session.
    let has_begun =
        state.ledger.session_exchange(&CredentialHash::of(code), &new).await.map_err(ApiError::of_change)?;
    Ok(has_begun.then_some(id))
}

/// Ends every session that the cookies name, and deletes the console's cookie. Any session that is left would log its user
/// in again.
pub(super) async fn log_out(state: Data<State>, request: HttpRequest, fields: FormFields) -> HandlerResult {
    fields.check_of_any_organization(&request)?;
    if state.console.login_url.is_some() {
        return Err(ApiError::NotFound);
    }
    let hashes: Vec<_> = cookie::session_ids(request.headers()).map(CredentialHash::of).collect();
    state.ledger.sessions_revoke(&hashes).await.map_err(ApiError::of_change)?;
    Ok(with_cookie(&state, "", Duration::ZERO, Paths::LOG_IN))
}

fn with_cookie(state: &State, id: &str, lasts: Duration, to: &str) -> HttpResponse {
    let is_https = state.console.public_url.as_ref().is_some_and(|url| url.scheme() == "https");
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!(
        "{}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
        cookie::COOKIE_NAME,
        lasts.whole_seconds()
    );
    HttpResponse::SeeOther().insert_header((LOCATION, to)).insert_header((SET_COOKIE, cookie)).finish()
}
