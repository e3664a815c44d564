//! `/api/v1/webhooks/` (specification, sections 4.1 and 4.2).

mod view;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::LOCATION,
    web::{Data, Path, Payload, ReqData},
};
use domain::WebhookId;
use ledger::{NewWebhook, Page};
use signing::SigningSecret;
use uuid::Uuid;

use self::view::{CreatedView, ListView, WebhookView};
use crate::{api::Api, json, page, problem::ApiError, registration::Registration, session::Administrator};

/// Registers a webhook. The only answer that holds its secret.
pub(crate) async fn create(
    api: Data<Api>,
    admin: ReqData<Administrator>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let members = json::members(&request, payload, api.body_limit).await?;
    let Registration { name, url, events } = Registration::read(&members, &api.rules).map_err(ApiError::Fields)?;
    let (id, tenant) = (WebhookId::from(Uuid::now_v7()), admin.tenant);
    let signing_secret = SigningSecret::generate().map_err(ApiError::unexpected)?;
    let secret =
        api.keys.seal(id, &signing_secret).map_err(|_| ApiError::unexpected("a secret could not be sealed"))?;
    let new = NewWebhook { id, tenant, name, url: url.as_str().to_owned(), events, secret };
    let most = api.webhooks_per_tenant;
    let webhook = api.ledger.webhook_create(&new, most).await?.ok_or(ApiError::TooManyWebhooks(most))?;
    tracing::info!(webhook = %id, %tenant, "a webhook was registered");
    let created = CreatedView { webhook: WebhookView::of(&webhook), signing_secret: signing_secret.expose() };
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/webhooks/{id}/"))).json(created))
}

/// The tenant's webhooks with their health, oldest first.
pub(crate) async fn list(
    api: Data<Api>,
    admin: ReqData<Administrator>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let Page { after, limit } = page::read(request.query_string()).map_err(ApiError::Parameters)?;
    // One more than asked for: whether there is a next page.
    let mut webhooks = api.ledger.webhook_list(admin.tenant, Page { after, limit: limit + 1 }).await?;
    let wanted = usize::from(limit);
    let is_more = webhooks.len() > wanted;
    webhooks.truncate(wanted);
    let last = webhooks.last().filter(|_| is_more);
    let next_cursor = last.map(|webhook| page::cursor_after(webhook.id));
    Ok(HttpResponse::Ok().json(ListView { data: webhooks.iter().map(WebhookView::of).collect(), next_cursor }))
}

/// One of the tenant's webhooks. An id that is none, an unknown one and another tenant's are answered alike.
pub(crate) async fn read(
    api: Data<Api>,
    admin: ReqData<Administrator>,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let id = webhook_id(&id).ok_or(ApiError::NotFound)?;
    let webhook = api.ledger.webhook_find(admin.tenant, id).await?.ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().json(WebhookView::of(&webhook)))
}

/// Only the form that the API itself writes; upper case is tolerated.
fn webhook_id(text: &str) -> Option<WebhookId> {
    if text.len() == uuid::fmt::Hyphenated::LENGTH { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hyphenated_form_of_an_id_is_read() {
        let id = "0192f0c1-0000-7000-8000-0000000000ab";
        assert_eq!(webhook_id(id).unwrap().to_string(), id);
        assert_eq!(webhook_id(&id.to_uppercase()).unwrap().to_string(), id);
        for bad in ["", "x", &id.replace('-', ""), &format!("{{{id}}}"), &format!("urn:uuid:{id}"), &"g".repeat(36)] {
            assert!(webhook_id(bad).is_none(), "{bad}");
        }
    }
}
