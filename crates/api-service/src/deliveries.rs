//! `/api/v1/webhooks/{id}/deliveries/` and `/api/v1/deliveries/`: the delivery log. It shows past attempts and the next one.

pub(crate) mod filter;
pub(crate) mod test_delivery;

use std::{iter, time::Duration};

use actix_web::{HttpResponse, http::header::LOCATION};
use domain::{DeliveryId, TEST_HEADER, WebhookId, delivery_headers, time_text::written};
use ledger::{Attempt, Delivery, DeliveryFilter, DeliveryPage, LastAttempt, ListedDelivery, OwnWebhook, Page};
use serde_json::{Value, json};

use crate::{
    http::{ApiError, Body, Caller, HandlerResult, Id, List, Query, SearchedList},
    webhooks,
};

/// How long a search may take: well below the time of a request. Of one webhook's log.
const WEBHOOK_BUDGET: Duration = Duration::from_millis(30);
/// Of the logs of all webhooks. Each of a thousand needs some microseconds for each day.
const TENANT_BUDGET: Duration = Duration::from_millis(250);
/// Of bodies, for a text.
const TEXT_BUDGET: Duration = Duration::from_millis(400);
/// How long such a search waits for the tenant's earlier one, and for those of others.
const TEXT_WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// One delivery, with its body and every attempt.
pub(crate) struct Detail {
    pub(crate) delivery: Delivery,
    /// `None` if it has expired.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) attempts: Vec<Attempt>,
}

/// The parameters of a log.
type LogParameters = Result<Query<DeliveryId, DeliveryFilter>, ApiError>;

/// Answers with the deliveries of a webhook, deleted or not, newest event first. An unknown webhook counts before a
/// faulty query.
pub(crate) async fn list(caller: Caller, Id(webhook): Id<WebhookId>, query: LogParameters) -> HandlerResult {
    let webhook = webhooks::known(&caller, webhook).await?;
    answer(&caller, Some(webhook), query?).await
}

/// Answers with the deliveries of all webhooks of the tenant, deleted or not, newest event first.
pub(crate) async fn list_of_tenant(caller: Caller, query: LogParameters) -> HandlerResult {
    answer(&caller, None, query?).await
}

async fn answer(
    caller: &Caller,
    webhook: Option<OwnWebhook>,
    Query(page, filter, cursors): Query<DeliveryId, DeliveryFilter>,
) -> HandlerResult {
    let page = search(caller, webhook, &filter, page).await?;
    let next_cursor = page.next.map(|last| cursors.after(last.as_uuid()));
    let bodies = caller.ledger.bodies_find(&page.deliveries).await?;
    let searched_until = page.searched_until().and_then(written);
    let row = |listed: &ListedDelivery| {
        view(listed.webhook, &listed.delivery, listed.last_attempt.as_ref(), bodies.contains(&listed.delivery.id))
    };
    let list = List { data: page.deliveries.iter().map(row).collect(), next_cursor };
    Ok(HttpResponse::Ok().json(SearchedList { list, searched_until }))
}

/// Searches the log of a webhook, or those of all webhooks of the tenant. Bodies are searched on connections of their own.
pub(crate) async fn search(
    caller: &Caller,
    webhook: Option<OwnWebhook>,
    filter: &DeliveryFilter,
    page: Page<DeliveryId>,
) -> Result<DeliveryPage, ApiError> {
    let tenant = caller.admin.tenant;
    let webhooks = match webhook {
        Some(webhook) => vec![webhook],
        None => caller.ledger.own_webhooks(tenant).await?,
    };
    let turn = match filter.contains {
        Some(_) => Some(caller.searches.turn(tenant, TEXT_WAIT_TIMEOUT).await.ok_or(ApiError::Searching)?),
        None => None,
    };
    let (ledger, budget) = match (&turn, webhook) {
        (Some(_), _) => (&caller.searches, TEXT_BUDGET),
        (None, Some(_)) => (&caller.ledger, WEBHOOK_BUDGET),
        (None, None) => (&caller.ledger, TENANT_BUDGET),
    };
    Ok(ledger.delivery_list((tenant, &webhooks), filter, page, budget).await?)
}

/// Answers with one delivery of a webhook, its request and every attempt.
pub(crate) async fn get(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>) -> HandlerResult {
    detail(&caller, webhooks::known(&caller, webhook).await?, id).await
}

/// Answers with one delivery of the tenant. A receiver knows no more of it than this id.
pub(crate) async fn get_of_tenant(caller: Caller, Id(id): Id<DeliveryId>) -> HandlerResult {
    let webhook = caller.ledger.delivery_webhook(caller.admin.tenant, id).await?.ok_or(ApiError::NotFound)?;
    detail(&caller, webhook, id).await
}

async fn detail(caller: &Caller, webhook: OwnWebhook, id: DeliveryId) -> HandlerResult {
    let Detail { delivery, body, attempts } = find(caller, webhook, id).await?;
    let mut detail = view(webhook.id(), &delivery, attempts.last().map(LastAttempt::from).as_ref(), body.is_some());
    // Each attempt has its own signature, which is not stored.
    let mut headers = json!({"Content-Type": "application/json"});
    for (name, value) in delivery_headers(id, delivery.event, delivery.event_type) {
        headers[name] = value.into();
    }
    if delivery.is_test {
        headers[TEST_HEADER.0] = TEST_HEADER.1.into();
    }
    detail["request"] =
        json!({"method": "POST", "headers": headers, "body": body.as_deref().map(String::from_utf8_lossy)});
    detail["attempt_log"] = attempts.iter().map(attempt).collect();
    detail["is_attempt_log_complete"] = (attempts.len() >= usize::from(delivery.attempts)).into();
    Ok(HttpResponse::Ok().json(detail))
}

/// Finds one delivery.
pub(crate) async fn find(caller: &Caller, webhook: OwnWebhook, id: DeliveryId) -> Result<Detail, ApiError> {
    let mut delivery = caller.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    let body = caller.ledger.body_find(caller.admin.tenant, &delivery).await?;
    let attempts = caller.ledger.attempt_list(id).await?;
    // An attempt that was recorded between the two reads has changed the delivery.
    if attempts.last().is_some_and(|last| last.attempt > delivery.attempts) {
        delivery = caller.ledger.delivery_find(webhook, id).await?.ok_or(ApiError::NotFound)?;
    }
    Ok(Detail { delivery, body, attempts })
}

/// Sends a delivery again, in a fresh run of the schedule. A faulty body counts before an unknown webhook.
pub(crate) async fn post_resend(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    Body(()): Body<()>,
) -> HandlerResult {
    let delivery = resend(&caller, webhook, id).await?;
    let last_attempt = caller.ledger.last_attempts(iter::once(&delivery)).await?.remove(&id);
    Ok(accepted(webhook, &delivery, last_attempt.as_ref()))
}

/// Sends a delivery again, with the same id and body: the outbox relay publishes its job. The call is idempotent while
/// the delivery waits for the first attempt of a run: two requests make one run. If the webhook is paused, the job is
/// held. A delivery is rejected if its day ended `retention.keep` ago (`retention.bodies`, if that is shorter) or earlier, as
/// the day would go before the schedule ends, and if its body is gone.
pub(crate) async fn resend(caller: &Caller, webhook: WebhookId, id: DeliveryId) -> Result<Delivery, ApiError> {
    let resent = caller.ledger.delivery_resend(&caller.admin, webhook, id, caller.kept).await;
    let delivery = resent.map_err(ApiError::of_change)??;
    caller.wakes.jobs.notify_one();
    tracing::info!(delivery = %id, %webhook, tenant = %caller.admin.tenant, "a delivery is sent again");
    Ok(delivery)
}

/// Answers 202 with a delivery. Its job is in the outbox, or published already.
fn accepted(webhook: WebhookId, delivery: &Delivery, last_attempt: Option<&LastAttempt>) -> HttpResponse {
    let location = format!("/api/v1/webhooks/{webhook}/deliveries/{}/", delivery.id);
    HttpResponse::Accepted().insert_header((LOCATION, location)).json(view(webhook, delivery, last_attempt, true))
}

fn view(webhook: WebhookId, delivery: &Delivery, last_attempt: Option<&LastAttempt>, has_body: bool) -> Value {
    json!({
        "id": delivery.id,
        "webhook_id": webhook,
        "event_id": delivery.event,
        "event_type": delivery.event_type,
        "is_test": delivery.is_test,
        "state": delivery.state.as_str(),
        "attempts": delivery.attempts,
        "created_at": written(delivery.created_at),
        "occurred_at": written(delivery.occurred_at()),
        "first_failed_at": delivery.first_failed_at.and_then(written),
        "next_attempt_at": delivery.next_attempt_at.and_then(written),
        "is_body_expired": !has_body,
        "last_attempt": last_attempt.map(|last| json!({
            "outcome": last.outcome.as_str(),
            "status": last.status,
            "error": last.error,
            "at": written(last.started_at),
        })),
    })
}

fn attempt(attempt: &Attempt) -> Value {
    json!({
        "attempt": attempt.attempt,
        "url": attempt.url,
        "started_at": written(attempt.started_at),
        "duration_ms": u64::try_from(attempt.elapsed().as_millis()).unwrap_or(u64::MAX),
        "outcome": attempt.outcome.as_str(),
        "status": attempt.status,
        "error": attempt.error,
        "response_body": String::from_utf8_lossy(&attempt.response_body),
        "signed_at": written(attempt.signed_at),
    })
}
