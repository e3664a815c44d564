//! What the console's forms do. Each answers with a redirect, so that a reload does nothing twice.

use std::collections::HashSet;

use actix_web::{HttpResponse, http::StatusCode};
use console::{Done, Fault, Frame, Paths, Registered, Settings};
use domain::{DeliveryId, WebhookId, visible};
use ledger::{Actor, NewRecovery, Recoverable, Recovery, Webhook, WebhookSettings};
use ring::digest::{SHA256, digest};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use super::{
    form::{Edited, Fields, Form},
    html,
    request::Asked,
    see_other,
    views::recover_page,
};
use crate::{
    deliveries::{self, test_delivery},
    docs::RECEIVERS,
    http::{
        Answer, ApiError, Caller, Id, Trace,
        fields::{Given, event_type},
    },
    recoveries::{self, Beginning, request::of_form},
    webhooks::{self, settings},
};

/// How long a form of registration may be open.
const OPEN: Duration = Duration::days(2);

/// Registers a webhook, and shows its secret. A second post of the same form finds the webhook registered.
pub(super) async fn register(caller: Caller, asked: Asked, form: Form) -> Answer {
    let number = form.first("form").parse().ok().filter(is_recent).ok_or(ApiError::StaleForm)?;
    let settings = match settings::registration(&*form, &caller.rules) {
        Ok(settings) => settings,
        Err(violations) => {
            let again = form.filled_in(violations);
            return Ok(html(StatusCode::UNPROCESSABLE_ENTITY, again.registration(&asked.frame, number)));
        }
    };
    let mut wanted = settings.clone();
    let id = id_of_form(&caller.admin, number);
    match webhooks::register(&caller, id, settings).await {
        Ok((webhook, secret)) => {
            let page = Registered { webhook: &webhook, secret: secret.expose(), receivers: &RECEIVERS };
            Ok(html(StatusCode::OK, page.render(&asked.frame)))
        }
        Err(ApiError::RegisteredBefore) => match webhooks::find(&caller, id).await {
            Ok(Webhook { settings: registered, .. }) => {
                wanted.is_active = registered.is_active;
                match wanted.changes(&registered).is_empty() {
                    true => Ok(done(&Paths::webhook(id), Done::Registered)),
                    false => Ok(filled_in_anew(&asked.frame, &form, &registered.name)),
                }
            }
            Err(ApiError::NotFound) => Ok(done(&Paths::webhook(id), Done::Registered)),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// A form that has registered a webhook and was filled in anew, with another number.
fn filled_in_anew(frame: &Frame, form: &Fields, registered: &str) -> HttpResponse {
    let mut again = form.filled_in(Vec::new());
    again.faults.push(Fault {
        field: String::new(),
        message: format!(
            "This form has registered the webhook {} already. Press Register to register this one too.",
            visible(registered)
        ),
    });
    html(StatusCode::CONFLICT, again.registration(frame, Uuid::now_v7()))
}

/// The id of the webhook that a form registers. Each post of the form has the same one. Nobody can choose the id of
/// another tenant's webhook by it.
fn id_of_form(admin: &Actor, form: Uuid) -> WebhookId {
    let mine = digest(&SHA256, &[admin.tenant.as_uuid().as_bytes().as_slice(), form.as_bytes()].concat());
    let mut bytes = *form.as_bytes();
    bytes[6..].copy_from_slice(&mine.as_ref()[..10]);
    Builder::from_bytes(bytes)
        .with_version(uuid::Version::SortRand)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
        .into()
}

fn is_recent(form: &Uuid) -> bool {
    let made = form.get_timestamp().and_then(|made| {
        let (seconds, _) = made.to_unix();
        OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()
    });
    made.is_some_and(|made| (OffsetDateTime::now_utc() - made).abs() < OPEN)
}

/// Changes the settings that the form has.
pub(super) async fn change(caller: Caller, Id(id): Id<WebhookId>, asked: Asked, form: Form) -> Answer {
    let shown = form.shown();
    let edited = Edited::of(&form, &shown);
    match webhooks::change(&caller, id, |settings| settings::change(&edited, &caller.rules, settings)).await {
        Err(ApiError::Fields(violations)) => {
            let webhook = webhooks::find(&caller, id).await?;
            let page = Settings { webhook, form: form.filled_in(violations), shown, kept_days: caller.kept_days() };
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
        changed => changed.map(|_| done(&Paths::of_webhook(id, "settings"), Done::Changed)),
    }
}

/// Pauses the webhook.
pub(super) async fn pause(caller: Caller, Id(id): Id<WebhookId>, _: Form) -> Answer {
    switch(&caller, id, false).await?;
    Ok(done(&Paths::webhook(id), Done::Paused))
}

/// Activates it.
pub(super) async fn activate(caller: Caller, Id(id): Id<WebhookId>, _: Form) -> Answer {
    switch(&caller, id, true).await?;
    Ok(done(&Paths::webhook(id), Done::Activated))
}

async fn switch(caller: &Caller, id: WebhookId, is_active: bool) -> Result<(), ApiError> {
    let switch = |settings: &mut WebhookSettings| {
        settings.is_active = is_active;
        Ok(())
    };
    webhooks::change(caller, id, switch).await.map(|_| ())
}

/// Cancels what waits, once that is confirmed.
pub(super) async fn cancel(caller: Caller, Id(id): Id<WebhookId>, form: Form) -> Answer {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    webhooks::cancel(&caller, id).await?;
    Ok(done(&Paths::webhook(id), Done::Cancelled))
}

/// Deletes the webhook, once that is confirmed. One that is deleted already stays so.
pub(super) async fn delete(caller: Caller, Id(id): Id<WebhookId>, form: Form) -> Answer {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    let deleted = webhooks::remove(&caller, id).await;
    if matches!(deleted, Err(ApiError::NotFound)) {
        webhooks::known(&caller, id).await?;
    } else {
        deleted?;
    }
    Ok(done(&Paths::webhook(id), Done::Deleted))
}

/// Sends a test, of the event type that was chosen, if one was.
pub(super) async fn test(caller: Caller, Id(id): Id<WebhookId>, trace: Trace, form: Form) -> Answer {
    let wish = match form.first("event_type") {
        "" => None,
        name => Some(event_type("event_type", &Given::Form(vec![name])).map_err(ApiError::Fields)?),
    };
    let delivery = test_delivery::send(&caller, id, wish, trace).await?;
    Ok(done(&Paths::delivery(id, delivery.id), Done::Tested))
}

/// Sends a delivery again.
pub(super) async fn resend(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>, _: Form) -> Answer {
    deliveries::resend(&caller, webhook, id).await?;
    Ok(done(&Paths::delivery(webhook, id), Done::Resent))
}

/// Begins a recovery, or leads to the one that is running.
pub(super) async fn recover(caller: Caller, Id(id): Id<WebhookId>, asked: Asked, form: Form) -> Answer {
    match of_form(&*form) {
        Ok(wanted) => {
            Ok(match recoveries::begin(&caller, id, &wanted).await? {
                Beginning::Running(other) if !is_of(&other, &wanted) => {
                    done(&Paths::recovery(id, other.id), Done::Another)
                }
                // A second post of the form finds the recovery that the first one has begun.
                Beginning::Begun(recovery) | Beginning::Running(recovery) => {
                    see_other(&Paths::recovery(id, recovery.id))
                }
            })
        }
        Err(violations) => {
            let page = recover_page(&caller, id, &form, Err(violations)).await?;
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
    }
}

/// Whether a recovery is the one that was asked for. Another one may have been running.
fn is_of(recovery: &Recovery, wanted: &NewRecovery) -> bool {
    let states = |states: &[Recoverable]| states.iter().copied().collect::<HashSet<_>>();
    (recovery.since, recovery.until) == (wanted.since, wanted.until)
        && states(&recovery.states) == states(&wanted.states)
        && recovery.outcomes == wanted.outcomes
}

/// Sends a browser on, to a page that says what was done.
fn done(path: &str, done: Done) -> HttpResponse {
    see_other(&format!("{path}?done={}", done.as_str()))
}
