//! What the handlers share, and which of them serves what.

use actix_web::{
    Resource, guard,
    middleware::from_fn,
    web::{self, ServiceConfig},
};
use domain::AddressPolicy;
use ledger::{Ledger, SecretKeys};
use service_kit::Settings;

use crate::{
    cross_site,
    metrics::Metrics,
    problem::ApiError,
    registration::Rules,
    session::{self, Sessions},
    webhooks,
};

/// One for all workers.
pub(crate) struct Api {
    pub(crate) ledger: Ledger,
    pub(crate) keys: SecretKeys,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Metrics,
    pub(crate) rules: Rules,
    /// The largest body, in bytes.
    pub(crate) body_limit: usize,
    pub(crate) webhooks_per_tenant: u32,
}

impl Api {
    pub(crate) fn new(
        settings: &Settings,
        ledger: Ledger,
        keys: SecretKeys,
        sessions: Sessions,
        metrics: Metrics,
    ) -> Self {
        let limits = &settings.limits;
        let addresses = AddressPolicy::allowing(settings.egress.allowed_networks.clone());
        Self {
            ledger,
            keys,
            sessions,
            metrics,
            rules: Rules { name_chars: limits.name_chars, url_chars: limits.url_chars, addresses },
            body_limit: limits.request_body_bytes,
            webhooks_per_tenant: limits.webhooks_per_tenant.try_into().unwrap_or(u32::MAX),
        }
    }
}

/// The routes (specification, section 4). Whatever lies below `/api/v1` is for administrators, so the session comes
/// first, even where there is nothing; what was wrapped last runs first.
pub(crate) fn routes(config: &mut ServiceConfig) {
    let collection = at(["/webhooks/", "/webhooks"])
        .route(web::route().guard(reads()).to(webhooks::list))
        .route(web::post().to(webhooks::create))
        .default_service(web::to(|| async { refuse("GET, HEAD, POST") }));
    let one = at(["/webhooks/{id}/", "/webhooks/{id}"])
        .route(web::route().guard(reads()).to(webhooks::read))
        .default_service(web::to(|| async { refuse("GET, HEAD") }));
    let v1 = web::scope("/api/v1")
        .wrap(from_fn(cross_site::guard))
        .wrap(from_fn(session::admins_only))
        .service(collection)
        .service(one)
        .default_service(web::to(nothing));
    config.service(v1).default_service(web::to(nothing));
}

/// The canonical path, which is also the name of the route in logs and metrics, and the accepted one.
fn at(paths: [&'static str; 2]) -> Resource {
    web::resource(paths)
}

/// An answer to HEAD is one to GET of which the server leaves out the body.
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
