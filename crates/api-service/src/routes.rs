//! The table of routes.

use std::future::ready;

use actix_web::{
    HttpResponse, Resource,
    middleware::from_fn,
    web::{self, Data, ServiceConfig, delete, patch, post},
};
use traces::Traces;

use crate::{
    deliveries::{self, test_delivery},
    docs::{self, Docs},
    events, history,
    http::{ApiError, get, nothing},
    keys,
    metrics::Metrics,
    middleware::UNMATCHED_ROUTE,
    pages, recoveries,
    sessions::{self, Authentication},
    state::State,
    stats, webhooks,
};

const API_PATH: &str = "/api/v1";

/// The routes, with what they share. All clones share the same.
#[derive(Clone)]
pub(crate) struct Routes {
    state: Data<State>,
    docs: Data<Docs>,
    authentication: Data<Authentication>,
    metrics: Data<Metrics>,
    traces: Data<Traces>,
}

impl Routes {
    pub(crate) fn new(
        state: State,
        docs: Docs,
        authentication: Authentication,
        metrics: Metrics,
        traces: Traces,
    ) -> Self {
        Self {
            state: Data::new(state),
            docs: Data::new(docs),
            authentication: Data::new(authentication),
            metrics: Data::new(metrics),
            traces: Data::new(traces),
        }
    }

    /// Adds the routes, and what they share, to an application.
    pub(crate) fn configure(&self, config: &mut ServiceConfig) {
        let Self { state, docs, authentication, metrics, traces } = self.clone();
        metrics.none_failed(UNMATCHED_ROUTE, ["GET", "POST"]);
        if state.console.enabled {
            pages::routes(config, &metrics);
        }
        table(config, &metrics);
        config.app_data(state).app_data(docs).app_data(authentication).app_data(metrics).app_data(traces);
    }
}

/// The specification's section 4. Everything below `/api/v1` except the documentation is for administrators and their
/// programs. So the session or key is checked first, even on unknown paths.
fn table(config: &mut ServiceConfig, metrics: &Metrics) {
    let at = |path, allowed| self::at(metrics, API_PATH, path, allowed);
    let v1 = web::scope(API_PATH)
        .wrap(from_fn(sessions::admins_only))
        .service(at("/webhooks/", "GET, HEAD, POST").route(get().to(webhooks::list)).route(post().to(webhooks::post)))
        .service(
            at("/webhooks/{id}/", "GET, HEAD, PATCH, DELETE")
                .route(get().to(webhooks::get))
                .route(patch().to(webhooks::patch))
                .route(delete().to(webhooks::delete)),
        )
        .service(at("/webhooks/{id}/test/", "POST").route(post().to(test_delivery::post)))
        .service(at("/webhooks/{id}/deliveries/", "GET, HEAD").route(get().to(deliveries::list)))
        .service(at("/webhooks/{id}/deliveries/{delivery_id}/", "GET, HEAD").route(get().to(deliveries::get)))
        .service(
            at("/webhooks/{id}/deliveries/{delivery_id}/resend/", "POST").route(post().to(deliveries::post_resend)),
        )
        .service(
            at("/webhooks/{id}/recover/", "GET, HEAD, POST")
                .route(get().to(recoveries::list))
                .route(post().to(recoveries::post)),
        )
        .service(
            at("/webhooks/{id}/recover/{recovery_id}/", "GET, HEAD, DELETE")
                .route(get().to(recoveries::get))
                .route(delete().to(recoveries::delete)),
        )
        .service(at("/webhooks/{id}/cancel/", "POST").route(post().to(webhooks::post_cancel)))
        .service(at("/events/{event_id}/", "GET, HEAD").route(get().to(events::get)))
        .service(at("/webhooks/{id}/stats/", "GET, HEAD").route(get().to(stats::get)))
        .service(at("/webhooks/{id}/notices/", "GET, HEAD").route(get().to(history::list_notices)))
        .service(at("/webhooks/{id}/history/", "GET, HEAD").route(get().to(history::list)))
        .service(at("/deliveries/", "GET, HEAD").route(get().to(deliveries::list_of_tenant)))
        .service(at("/deliveries/{delivery_id}/", "GET, HEAD").route(get().to(deliveries::get_of_tenant)))
        .service(at("/history/", "GET, HEAD").route(get().to(history::list_of_tenant)))
        .service(at("/keys/", "GET, HEAD, POST").route(get().to(keys::list)).route(post().to(keys::post)))
        .service(at("/keys/{id}/", "DELETE").route(delete().to(keys::delete)))
        .service(at("/event-types/", "GET, HEAD").route(get().to(events::list_types)))
        .default_service(web::to(nothing));
    let at = |path, allowed| self::at(metrics, "", path, allowed);
    config
        .service(at("/api/v1/openapi.json", "GET, HEAD").route(get().to(docs::file)))
        .service(at("/api/v1/asyncapi.yaml", "GET, HEAD").route(get().to(docs::file)))
        .service(at("/api/v1/schemas/{file}", "GET, HEAD").route(get().to(docs::file)))
        .service(at("/api/v1/docs/", "GET, HEAD").route(get().to(docs::file)))
        .service(at("/api/v1/docs/style.css", "GET, HEAD").route(get().to(docs::file)))
        .service(at("/api/v1/docs/{page}/", "GET, HEAD").route(get().to(docs::file)))
        .service(v1)
        .default_service(web::to(nothing));
}

/// A path, which also names the route in logs and metrics after its scope, and the methods that it takes. A path that ends
/// in a slash is accepted without it too.
fn at(metrics: &Metrics, scope: &str, path: &'static str, allowed: &'static str) -> Resource {
    #[cfg(test)]
    tests::ROUTES.with_borrow_mut(|routes| routes.insert(path));
    metrics.none_failed(&format!("{scope}{path}"), allowed.split(", "));
    let mut paths = vec![path];
    paths.extend(path.strip_suffix('/'));
    let refuse = move || ready(Err::<HttpResponse, _>(ApiError::MethodNotAllowed(allowed)));
    web::resource(paths).default_service(web::to(refuse))
}

#[cfg(test)]
pub(crate) mod tests;
