//! What is asked of a webhook that was deleted meanwhile.

use actix_web::{
    Error, FromRequest,
    body::{BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    middleware::Next,
};
use console::Paths;
use domain::WebhookId;

use super::see_other;
use crate::{caller::Caller, calls::webhooks, problem::ApiError};

/// Leads to the webhook's page, which says that it is deleted, instead of a page that says that nothing is here.
pub(super) async fn leads_to_its_page(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let answered = next.call(request).await?.map_into_boxed_body();
    match of_deleted(&answered).await {
        Some(id) => Ok(answered.into_response(see_other(&Paths::webhook(id)))),
        None => Ok(answered),
    }
}

/// The deleted webhook of the tenant of which something was asked that is not there.
async fn of_deleted(answered: &ServiceResponse) -> Option<WebhookId> {
    let error = answered.response().error()?;
    if !matches!(error.as_error::<ApiError>(), Some(ApiError::NotFound)) {
        return None;
    }
    let id: WebhookId = answered.request().match_info().get("id")?.parse().ok()?;
    let caller = Caller::from_request(answered.request(), &mut Payload::None).into_inner().ok()?;
    let is_known = webhooks::known(&caller, id).await.is_ok();
    let is_gone = matches!(webhooks::find(&caller, id).await, Err(ApiError::NotFound));
    (is_known && is_gone).then_some(id)
}
