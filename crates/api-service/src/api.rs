//! What the handlers share, and the routes to them.

use actix_web::{
    Resource, guard,
    middleware::from_fn,
    web::{self, ServiceConfig},
};
use ledger::{Ledger, SecretKeys};
use service_kit::Settings;

use crate::{
    cross_site, deliveries,
    docs::{self, Docs},
    event_types,
    metrics::Metrics,
    outbox::Outbox,
    problem::ApiError,
    rate_limit::RateLimit,
    recoveries,
    registration::Rules,
    session::{self, Sessions},
    test_deliveries, webhooks,
};

/// Shared by all workers.
pub(crate) struct Api {
    pub(crate) ledger: Ledger,
    pub(crate) outbox: Outbox,
    pub(crate) keys: SecretKeys,
    pub(crate) sessions: Sessions,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) metrics: Metrics,
    pub(crate) rules: Rules,
    /// The largest body, in bytes.
    pub(crate) body_limit: usize,
    pub(crate) webhooks_per_tenant: u32,
    /// How long history is kept.
    pub(crate) keep: std::time::Duration,
    pub(crate) docs: Docs,
}

impl Api {
    pub(crate) fn new(
        settings: &Settings,
        ledger: Ledger,
        outbox: Outbox,
        keys: SecretKeys,
        sessions: Sessions,
        metrics: Metrics,
    ) -> Self {
        let limits = &settings.limits;
        let destinations = settings.egress.destinations();
        Self {
            ledger,
            outbox,
            keys,
            sessions,
            rate_limit: RateLimit::new(&settings.api),
            metrics,
            rules: Rules { name_chars: limits.name_chars, url_chars: limits.url_chars, destinations },
            body_limit: limits.request_body_bytes,
            webhooks_per_tenant: limits.webhooks_per_tenant.try_into().unwrap_or(u32::MAX),
            keep: settings.retention.keep,
            docs: Docs::new(limits),
        }
    }
}

/// The routes (specification, section 4). Everything below `/api/v1` except the documentation is for administrators. So
/// the session is checked first, even on unknown paths. The middleware that is wrapped last runs first.
pub(crate) fn routes(config: &mut ServiceConfig) {
    let v1 = web::scope("/api/v1")
        .wrap(from_fn(cross_site::guard))
        .wrap(from_fn(session::admins_only))
        .configure(of_webhooks)
        .configure(of_deliveries)
        .service(
            at(["/event-types/", "/event-types"])
                .route(web::route().guard(reads()).to(event_types::list))
                .default_service(web::to(|| async { refuse(READ) })),
        )
        .default_service(web::to(nothing));
    config.configure(of_docs).service(v1).default_service(web::to(nothing));
}

const READ: &str = "GET, HEAD";

fn of_docs(config: &mut ServiceConfig) {
    let openapi = at(["/api/v1/openapi.json"])
        .route(web::route().guard(reads()).to(docs::openapi))
        .default_service(web::to(|| async { refuse(READ) }));
    let page = at(["/api/v1/docs/", "/api/v1/docs"])
        .route(web::route().guard(reads()).to(docs::page))
        .default_service(web::to(|| async { refuse(READ) }));
    let style = at(["/api/v1/docs/style.css"])
        .route(web::route().guard(reads()).to(docs::style))
        .default_service(web::to(|| async { refuse(READ) }));
    config.service(openapi).service(page).service(style);
}

fn of_webhooks(config: &mut ServiceConfig) {
    let collection = at(["/webhooks/", "/webhooks"])
        .route(web::route().guard(reads()).to(webhooks::list))
        .route(web::post().to(webhooks::create))
        .default_service(web::to(|| async { refuse("GET, HEAD, POST") }));
    let one = at(["/webhooks/{id}/", "/webhooks/{id}"])
        .route(web::route().guard(reads()).to(webhooks::read))
        .route(web::patch().to(webhooks::change))
        .route(web::delete().to(webhooks::delete))
        .default_service(web::to(|| async { refuse("GET, HEAD, PATCH, DELETE") }));
    let test = at(["/webhooks/{id}/test/", "/webhooks/{id}/test"])
        .route(web::post().to(test_deliveries::create))
        .default_service(web::to(|| async { refuse("POST") }));
    config.service(collection).service(one).service(test);
}

fn of_deliveries(config: &mut ServiceConfig) {
    let log = at(["/webhooks/{id}/deliveries/", "/webhooks/{id}/deliveries"])
        .route(web::route().guard(reads()).to(deliveries::list))
        .default_service(web::to(|| async { refuse(READ) }));
    let one = at(["/webhooks/{id}/deliveries/{delivery_id}/", "/webhooks/{id}/deliveries/{delivery_id}"])
        .route(web::route().guard(reads()).to(deliveries::read))
        .default_service(web::to(|| async { refuse(READ) }));
    let resend =
        at(["/webhooks/{id}/deliveries/{delivery_id}/resend/", "/webhooks/{id}/deliveries/{delivery_id}/resend"])
            .route(web::post().to(deliveries::resend))
            .default_service(web::to(|| async { refuse("POST") }));
    let recoveries = at(["/webhooks/{id}/recover/", "/webhooks/{id}/recover"])
        .route(web::post().to(recoveries::begin))
        .default_service(web::to(|| async { refuse("POST") }));
    let recovery = at(["/webhooks/{id}/recover/{recovery_id}/", "/webhooks/{id}/recover/{recovery_id}"])
        .route(web::route().guard(reads()).to(recoveries::read))
        .default_service(web::to(|| async { refuse(READ) }));
    config.service(log).service(one).service(resend).service(recoveries).service(recovery);
}

/// The first path is canonical and names the route in logs and metrics. The other one is accepted too.
fn at<const N: usize>(paths: [&'static str; N]) -> Resource {
    #[cfg(test)]
    tests::ROUTES.with_borrow_mut(|routes| routes.insert(paths[0]));
    web::resource(Vec::from(paths))
}

/// HEAD has the same handlers as GET: the server leaves out the body.
fn reads() -> impl guard::Guard {
    guard::Any(guard::Get()).or(guard::Head())
}

fn refuse(allowed: &'static str) -> Result<&'static str, ApiError> {
    Err(ApiError::MethodNotAllowed(allowed))
}

async fn nothing() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound)
}

#[cfg(test)]
pub(crate) mod tests;
