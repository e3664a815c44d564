//! The API's description, served to programs and to people. It needs no session.

use actix_web::{
    HttpResponse,
    http::header,
    web::{Data, Path},
};

use crate::{
    docs,
    problem::{Answer, ApiError},
    state::State,
};

/// The pages need their style sheet and nothing else: no script, no other server.
const POLICY: &str = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";

/// `GET /api/v1/openapi.json`
pub(crate) async fn openapi(state: Data<State>) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(state.docs.json.clone())
}

/// `GET /api/v1/asyncapi.yaml`: as text, which browsers show.
pub(crate) async fn asyncapi(state: Data<State>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8"))
        .body(state.docs.asyncapi.clone())
}

/// `GET /api/v1/schemas/{file}`
pub(crate) async fn schema(file: Path<String>) -> Answer {
    let (_, schema) = docs::SCHEMAS.into_iter().find(|(name, _)| *name == *file).ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/schema+json")).body(schema))
}

/// `GET /api/v1/docs/`
pub(crate) async fn overview(state: Data<State>) -> Answer {
    html(&state, "")
}

/// `GET /api/v1/docs/{page}/`
pub(crate) async fn page(state: Data<State>, name: Path<String>) -> Answer {
    html(&state, &name)
}

fn html(state: &State, name: &str) -> Answer {
    let page = state.docs.pages.get(name).ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .body(page.clone()))
}

/// `GET /api/v1/docs/style.css`
pub(crate) async fn style() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/css; charset=utf-8")).body(console::DOCS_STYLE)
}
