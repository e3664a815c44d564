//! `POST …/resend/`: a fresh run of the schedule for one delivery.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path, Payload, ReqData},
};
use domain::DeliveryId;
use ledger::Resend;

use super::accepted;
use crate::{api::Api, fields::Fields, json, path, problem::ApiError, session::Administrator, webhooks};

/// Sends a delivery again, with the same id and body. The call is idempotent while the delivery waits for the first
/// attempt of a run: two requests make one run. If the webhook is paused, the job is held. A delivery whose day ended
/// `retention.keep` ago or earlier is rejected: retention may drop that day at any moment.
pub(crate) async fn resend(
    api: Data<Api>,
    admin: ReqData<Administrator>,
    ids: Path<(String, String)>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (webhook, id) = ids.into_inner();
    let id: DeliveryId = path::id(&id)?;
    let members = json::members_if_any(&request, payload, api.body_limit).await?;
    Fields::of(&members).finish(&[], Some(())).map_err(ApiError::Fields)?;
    let webhook = webhooks::known(&api, &admin, &webhook).await?;
    api.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    api.outbox.check()?;
    match api.ledger.delivery_resend(admin.tenant, webhook.id(), id, api.keep).await? {
        Resend::NotFound => return Err(ApiError::NotFound),
        Resend::TooOld => return Err(ApiError::TooOld),
        Resend::Waiting => {}
        Resend::Begun(begun) => {
            if let Err(error) = api.outbox.publish(&begun.batch).await
                && api.ledger.resend_undo(&begun).await?
            {
                return Err(ApiError::BrokerAway(error));
            }
            tracing::info!(delivery = %id, webhook = %webhook.id(), tenant = %admin.tenant, "a delivery is sent again");
        }
    }
    accepted(&api, webhook, id).await
}
