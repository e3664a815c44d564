//! The style sheet, the script and the icon. They need no session.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
};

use crate::problem::{Answer, ApiError};

/// Their addresses change with their content, so a browser may keep them.
const KEPT: &str = "public, max-age=31536000, immutable";

pub(super) async fn read(request: HttpRequest) -> Answer {
    let (kind, text) = match request.match_info().query("name") {
        "console.css" => ("text/css; charset=utf-8", console::STYLE),
        "console.js" => ("text/javascript; charset=utf-8", console::SCRIPT),
        "icon.svg" => ("image/svg+xml", console::ICON),
        _ => return Err(ApiError::NotFound),
    };
    Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, kind)).insert_header((CACHE_CONTROL, KEPT)).body(text))
}
