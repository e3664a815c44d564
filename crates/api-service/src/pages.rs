//! The console: its pages, for administrators in a browser. They call the same functions as the REST API.

pub(crate) mod brakes;
mod deleted;
mod deliveries;
mod find;
mod form;
mod history;
mod keys;
mod log_in;
pub(crate) mod problem;
mod recoveries;
mod refresh;
mod register;
mod request;
mod stats;
mod webhook;
mod webhooks;

use actix_web::{
    HttpRequest, HttpResponse, Resource,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION},
    },
    middleware::from_fn,
    web::{self, ServiceConfig, post},
};
use console::Done;

use self::{
    form::{Form, FormFields},
    request::PageRequest,
    webhook::framed,
};
use crate::{
    http::{ApiError, HandlerResult, get, nothing},
    metrics::Metrics,
};

const CONSOLE_PATH: &str = "/console";

/// The pages. Everything but the log-in and the assets needs a session.
pub(crate) fn routes(config: &mut ServiceConfig, metrics: &Metrics) {
    let at = |path| self::at(metrics, CONSOLE_PATH, path);
    let console = web::scope(CONSOLE_PATH)
        .wrap(from_fn(deleted::leads_to_its_history))
        .wrap(from_fn(refresh::without_what_is_known))
        .wrap(from_fn(log_in::administrators_only))
        .service(at("/").route(get().to(webhooks::list)))
        .service(at("/deleted/").route(get().to(webhooks::list_deleted)))
        .service(at("/find/").route(get().to(find::find)))
        .service(at("/keys/").route(get().to(keys::list)).route(post().to(keys::create)))
        .service(at("/keys/revoke/").route(post().to(keys::revoke)))
        .service(at("/logout/").route(post().to(log_in::log_out)))
        .service(at("/register/").route(get().to(register::form)).route(post().to(register::register)))
        .service(at("/webhooks/{id}/").route(get().to(deliveries::log)))
        .service(at("/webhooks/{id}/deliveries/{delivery_id}/").route(get().to(deliveries::delivery)))
        .service(at("/webhooks/{id}/deliveries/{delivery_id}/body/").route(get().to(deliveries::body)))
        .service(at("/webhooks/{id}/deliveries/{delivery_id}/resend/").route(post().to(deliveries::resend)))
        .service(at("/webhooks/{id}/history/").route(get().to(history::history)))
        .service(at("/webhooks/{id}/settings/").route(get().to(webhook::settings)).route(post().to(webhook::change)))
        .service(at("/webhooks/{id}/recover/").route(get().to(recoveries::form)).route(post().to(recoveries::begin)))
        .service(at("/webhooks/{id}/recoveries/{recovery_id}/").route(get().to(recoveries::progress)))
        .service(at("/webhooks/{id}/recoveries/{recovery_id}/stop/").route(post().to(recoveries::stop)))
        .service(at("/webhooks/{id}/test/").route(post().to(deliveries::test)))
        .service(at("/webhooks/{id}/pause/").route(post().to(webhook::pause)))
        .service(at("/webhooks/{id}/activate/").route(post().to(webhook::activate)))
        .service(at("/webhooks/{id}/cancel/").route(post().to(webhook::cancel)))
        .service(at("/webhooks/{id}/delete/").route(post().to(webhook::delete)))
        .default_service(web::to(nothing));
    let at = |path| self::at(metrics, "", path);
    config
        .service(at("/console").route(get().to(to_console)))
        .service(at("/console/assets/{name}").route(get().to(asset)))
        .service(at("/console/login/").route(get().to(log_in::page)).route(post().to(log_in::log_in)))
        .service(console);
}

/// A path, which also names the route in metrics after its scope. A path that ends in a slash is accepted without it too.
fn at(metrics: &Metrics, scope: &str, path: &'static str) -> Resource {
    metrics.none_failed(&format!("{scope}{path}"), ["GET", "HEAD", "POST"]);
    let mut paths = vec![path];
    paths.extend(path.strip_suffix('/').filter(|path| !path.is_empty()));
    web::resource(paths).default_service(web::to(nothing))
}

async fn to_console() -> HttpResponse {
    see_other(console::Paths::HOME)
}

/// The addresses of this version change with the content, so a browser may keep that.
const ASSET_CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

/// Answers with the style sheet, the script or the icon.
async fn asset(request: HttpRequest) -> HandlerResult {
    let (kind, text) = match request.match_info().query("name") {
        "console.css" => ("text/css; charset=utf-8", console::STYLE),
        "console.js" => ("text/javascript; charset=utf-8", console::SCRIPT),
        "icon.svg" => ("image/svg+xml", console::ICON),
        _ => return Err(ApiError::NotFound),
    };
    let mut answer = HttpResponse::Ok();
    answer.insert_header((CONTENT_TYPE, kind));
    if console::is_of_this_version(request.query_string()) {
        answer.insert_header((CACHE_CONTROL, ASSET_CACHE_CONTROL));
    }
    Ok(answer.body(text))
}

/// Answers with a page. The middleware adds the headers of pages.
fn html(status: StatusCode, text: String) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "text/html; charset=utf-8")).body(text)
}

/// Redirects a browser to a page that says what was done, so that a reload does nothing twice.
fn done(path: &str, done: Done) -> HttpResponse {
    let separator = if path.contains('?') { '&' } else { '?' };
    see_other(&format!("{path}{separator}done={}", done.as_str()))
}

/// Redirects a browser, by GET.
fn see_other(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}
