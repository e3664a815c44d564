//! What is asked of a webhook that was deleted meanwhile.

use actix_web::{
    Error, FromRequest,
    body::{BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    middleware::Next,
};
use console::Paths;
use domain::WebhookId;

use super::{refresh::is_refresh, see_other};
use crate::{
    http::{ApiError, Caller},
    webhooks,
};

/// Leads to the webhook's history, which says that it is deleted, instead of a page that says that nothing is here. A
/// refresh is answered 404: a redirect would not show its reason.
pub(super) async fn leads_to_its_history(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let is_refresh = is_refresh(request.request());
    let answered = next.call(request).await?.map_into_boxed_body();
    match of_deleted(&answered).await.filter(|_| !is_refresh) {
        Some(page) => Ok(answered.into_response(see_other(&page))),
        None => Ok(answered),
    }
}

/// The history of the tenant's deleted webhook of which something was asked that is not there. It is kept longest.
async fn of_deleted(answered: &ServiceResponse) -> Option<String> {
    let error = answered.response().error()?;
    if !matches!(error.as_error::<ApiError>(), Some(ApiError::NotFound)) {
        return None;
    }
    let id: WebhookId = answered.request().match_info().get("id")?.parse().ok()?;
    let caller = Caller::from_request(answered.request(), &mut Payload::None).into_inner().ok()?;
    webhooks::deleted(&caller, id).await.ok()?;
    Some(Paths::of_webhook(id, "history"))
}
