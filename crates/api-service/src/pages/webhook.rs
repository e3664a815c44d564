//! One webhook: the frame of its pages, its settings, and the forms that pause, activate, cancel and delete.

use actix_web::http::StatusCode;
use console::{Done, Paths, SettingsPage, WebhookForm, WebhookFrame};
use domain::{HeaderChange, WebhookId};
use ledger::{OwnWebhook, WebhookSettings};

use super::{Form, PageRequest, done, form::Edited, html, see_other};
use crate::{
    http::{ApiError, Caller, HandlerResult, Id, Precondition},
    webhooks,
};

/// Finds a webhook, deleted or not, as long as its log is kept, with the frame of its pages.
pub(super) async fn framed(caller: &Caller, id: WebhookId) -> Result<(OwnWebhook, WebhookFrame), ApiError> {
    let own = webhooks::known(caller, id).await?;
    let frame = match caller.ledger.webhook_find(caller.admin.tenant, id).await? {
        Some(webhook) => WebhookFrame::Live(Box::new(webhook)),
        None => WebhookFrame::Deleted(webhooks::deleted(caller, id).await?),
    };
    Ok((own, frame))
}

/// Answers with a webhook's settings.
pub(super) async fn settings(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest) -> HandlerResult {
    let webhook = webhooks::find(&caller, id).await?;
    let (form, shown) = (WebhookForm::of(&webhook.settings), webhook.settings.clone());
    let page = SettingsPage { webhook, form, shown, kept_days: caller.kept_days() };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// Changes the settings that the form shows.
pub(super) async fn change(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest, form: Form) -> HandlerResult {
    let shown = form.shown();
    let edited = Edited::of(&form, &shown);
    match webhooks::change(&caller, id, &Precondition::NONE, |settings| {
        webhooks::settings::change(&edited, &caller.rules, None, settings)
    })
    .await
    {
        Err(ApiError::Fields(violations) | ApiError::HeadersRequired(violations)) => {
            let webhook = webhooks::find(&caller, id).await?;
            let page = SettingsPage { webhook, form: form.filled_in(violations), shown, kept_days: caller.kept_days() };
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
        changed => changed.map(|_| done(&Paths::of_webhook(id, "settings"), Done::Changed)),
    }
}

/// Pauses the webhook.
pub(super) async fn pause(caller: Caller, Id(id): Id<WebhookId>, _: Form) -> HandlerResult {
    switch(&caller, id, false).await?;
    Ok(done(&Paths::webhook(id), Done::Paused))
}

/// Activates the webhook.
pub(super) async fn activate(caller: Caller, Id(id): Id<WebhookId>, _: Form) -> HandlerResult {
    switch(&caller, id, true).await?;
    Ok(done(&Paths::webhook(id), Done::Activated))
}

async fn switch(caller: &Caller, id: WebhookId, is_active: bool) -> Result<(), ApiError> {
    let switch = |settings: &mut WebhookSettings| {
        settings.is_active = is_active;
        Ok(HeaderChange::default())
    };
    webhooks::change(caller, id, &Precondition::NONE, switch).await.map(|_| ())
}

/// Cancels the waiting deliveries, once the form confirms that.
pub(super) async fn cancel(caller: Caller, Id(id): Id<WebhookId>, form: Form) -> HandlerResult {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    webhooks::cancel(&caller, id).await?;
    Ok(done(&Paths::webhook(id), Done::Cancelled))
}

/// Deletes the webhook, once the form confirms that. A webhook that is deleted already stays deleted.
pub(super) async fn delete(caller: Caller, Id(id): Id<WebhookId>, form: Form) -> HandlerResult {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    let deleted = webhooks::remove(&caller, id, &Precondition::NONE).await;
    if matches!(deleted, Err(ApiError::NotFound)) {
        webhooks::known(&caller, id).await?;
    } else {
        deleted?;
    }
    Ok(done(&Paths::webhook(id), Done::Deleted))
}
