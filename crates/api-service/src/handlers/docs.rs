//! The API's description, served to programs and to people. It needs no session.

use actix_web::{HttpResponse, http::header, web::Data};

use crate::{docs, state::State};

/// The page needs its style sheet and nothing else: no script, no other server.
const POLICY: &str = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";

/// `GET /api/v1/openapi.json`
pub(crate) async fn openapi(state: Data<State>) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(state.docs.json.clone())
}

/// `GET /api/v1/docs/`
pub(crate) async fn page(state: Data<State>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .body(state.docs.page.clone())
}

/// `GET /api/v1/docs/style.css`
pub(crate) async fn style() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/css; charset=utf-8")).body(docs::STYLE)
}
