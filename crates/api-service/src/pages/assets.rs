//! The style sheet, the script and the icon. They need no session.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
};

use crate::http::{Answer, ApiError};

/// The addresses of this version change with the content, so a browser may keep that.
const KEPT: &str = "public, max-age=31536000, immutable";

pub(super) async fn read(request: HttpRequest) -> Answer {
    let (kind, text) = match request.match_info().query("name") {
        "console.css" => ("text/css; charset=utf-8", console::STYLE),
        "console.js" => ("text/javascript; charset=utf-8", console::SCRIPT),
        "icon.svg" => ("image/svg+xml", console::ICON),
        _ => return Err(ApiError::NotFound),
    };
    let mut answer = HttpResponse::Ok();
    answer.insert_header((CONTENT_TYPE, kind));
    if console::is_of_this_version(request.query_string()) {
        answer.insert_header((CACHE_CONTROL, KEPT));
    }
    Ok(answer.body(text))
}
