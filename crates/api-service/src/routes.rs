//! The table of routes.

use actix_web::{
    Resource, guard,
    middleware::from_fn,
    web::{self, Data, ServiceConfig},
};

use crate::{
    authentication::{self, Authentication, cross_site},
    handlers::{deliveries, docs, event_types, recoveries, resends, test_deliveries, webhooks},
    metrics::Metrics,
    problem::ApiError,
    state::State,
};

/// The routes, with what they share. All clones share the same.
#[derive(Clone)]
pub(crate) struct Routes {
    state: Data<State>,
    authentication: Data<Authentication>,
    metrics: Data<Metrics>,
}

impl Routes {
    pub(crate) fn new(state: State, authentication: Authentication, metrics: Metrics) -> Self {
        Self { state: Data::new(state), authentication: Data::new(authentication), metrics: Data::new(metrics) }
    }

    /// Adds the routes, and what they share, to an application.
    pub(crate) fn configure(&self, config: &mut ServiceConfig) {
        let Self { state, authentication, metrics } = self.clone();
        config.app_data(state).app_data(authentication).app_data(metrics).configure(table);
    }
}

/// The specification's section 4. Everything below `/api/v1` except the documentation is for administrators. So the
/// session is checked first, even on unknown paths. The middleware that is wrapped last runs first.
fn table(config: &mut ServiceConfig) {
    let v1 = web::scope("/api/v1")
        .wrap(from_fn(cross_site::guard))
        .wrap(from_fn(authentication::admins_only))
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
            .route(web::post().to(resends::create))
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
