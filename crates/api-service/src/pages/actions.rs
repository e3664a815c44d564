//! What the console's forms do. Each answers with a redirect, so that a reload does nothing twice.

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use console::{Done, Fault, Paths, Registered, Settings, WebhookForm};
use domain::{DeliveryId, WebhookId};
use ledger::{Actor, WebhookChange};
use ring::digest::{SHA256, digest};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use super::{
    form::{Fields, Form},
    html,
    request::Asked,
    see_other,
    views::{recover_page, recovery_request},
};
use crate::{
    authentication::Administrator,
    calls::{cancellations, deliveries, recoveries, test_deliveries, webhooks},
    docs::RECEIVERS,
    problem::{Answer, ApiError},
    request::{Id, Registration, read_change},
    state::State,
};

/// How long a form of registration may be open.
const OPEN: Duration = Duration::days(2);

/// Registers a webhook, and shows its secret. A second post of the same form finds the webhook registered.
pub(super) async fn register(state: Data<State>, admin: Administrator, asked: Asked, form: Form) -> Answer {
    let number = form.first("form").parse().ok().filter(is_recent).ok_or(ApiError::StaleForm)?;
    let registration = match Registration::read(&form.webhook(), &state.rules) {
        Ok(registration) => registration,
        Err(violations) => {
            let again = filled_in(&form, violations);
            return Ok(html(StatusCode::UNPROCESSABLE_ENTITY, again.registration(&asked.frame, number)));
        }
    };
    let id = id_of_form(&admin, number);
    match webhooks::register(&state, &admin, id, registration).await {
        Ok((webhook, secret)) => {
            let page = Registered { webhook: &webhook, secret: secret.expose(), receivers: &RECEIVERS };
            Ok(html(StatusCode::OK, page.render(&asked.frame)))
        }
        Err(ApiError::RegisteredBefore) => Ok(done(&Paths::webhook(id), Done::Registered)),
        Err(error) => Err(error),
    }
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

/// The form as it was filled in, with what is wrong beside its fields.
fn filled_in(form: &Fields, violations: Vec<crate::violation::Violation>) -> WebhookForm {
    let faults = violations.into_iter().map(|wrong| Fault { field: wrong.field, message: wrong.message });
    WebhookForm {
        name: form.first("name").to_owned(),
        url: form.first("url").to_owned(),
        events: form.all("events").map(str::to_owned).collect(),
        faults: faults.collect(),
    }
}

/// Changes name, URL and events.
pub(super) async fn change(
    state: Data<State>,
    admin: Administrator,
    Id(id): Id<WebhookId>,
    asked: Asked,
    form: Form,
) -> Answer {
    match read_change(&form.webhook_changes(), &state.rules) {
        Ok(change) => {
            webhooks::change(&state, &admin, id, &change).await?;
            Ok(done(&Paths::of_webhook(id, "settings"), Done::Changed))
        }
        Err(violations) => {
            let webhook = webhooks::find(&state, &admin, id).await?;
            let shown = WebhookForm {
                name: form.first("shown_name").to_owned(),
                url: form.first("shown_url").to_owned(),
                events: form.all("shown_events").map(str::to_owned).collect(),
                faults: Vec::new(),
            };
            let form = filled_in(&form, violations);
            let page = Settings { webhook, form, shown, kept_days: state.kept_days() };
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
    }
}

/// Pauses the webhook.
pub(super) async fn pause(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>, _: Form) -> Answer {
    switch(&state, &admin, id, false).await?;
    Ok(done(&Paths::webhook(id), Done::Paused))
}

/// Activates it.
pub(super) async fn activate(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>, _: Form) -> Answer {
    switch(&state, &admin, id, true).await?;
    Ok(done(&Paths::webhook(id), Done::Activated))
}

async fn switch(state: &State, admin: &Actor, id: WebhookId, is_active: bool) -> Result<(), ApiError> {
    let change = WebhookChange { is_active: Some(is_active), ..WebhookChange::default() };
    webhooks::change(state, admin, id, &change).await.map(|_| ())
}

/// Cancels what waits, once that is confirmed.
pub(super) async fn cancel(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>, form: Form) -> Answer {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    cancellations::cancel(&state, &admin, id).await?;
    Ok(done(&Paths::webhook(id), Done::Cancelled))
}

/// Deletes the webhook, once that is confirmed.
pub(super) async fn delete(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>, form: Form) -> Answer {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(&Paths::of_webhook(id, "settings")));
    }
    webhooks::delete(&state, &admin, id).await?;
    Ok(done(&Paths::webhook(id), Done::Deleted))
}

/// Sends a test.
pub(super) async fn test(state: Data<State>, admin: Administrator, Id(id): Id<WebhookId>, _: Form) -> Answer {
    let delivery = test_deliveries::send(&state, &admin, id, None).await?;
    Ok(done(&Paths::delivery(id, delivery.id), Done::Tested))
}

/// Sends a delivery again.
pub(super) async fn resend(
    state: Data<State>,
    admin: Administrator,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    _: Form,
) -> Answer {
    deliveries::resend(&state, &admin, webhook, id).await?;
    Ok(done(&Paths::delivery(webhook, id), Done::Resent))
}

/// Begins a recovery.
pub(super) async fn recover(
    state: Data<State>,
    admin: Administrator,
    Id(id): Id<WebhookId>,
    asked: Asked,
    form: Form,
) -> Answer {
    let states = form.all("states").map(str::to_owned).collect::<Vec<_>>();
    match recovery_request(form.first("since"), form.first("until"), &states) {
        Ok(wanted) => {
            let recovery = recoveries::begin(&state, &admin, id, &wanted).await?;
            Ok(see_other(&Paths::recovery(id, recovery.id)))
        }
        Err(violations) => {
            let given = (form.first("since").to_owned(), form.first("until").to_owned(), states);
            let page = recover_page(&state, &admin, id, given, Err(violations)).await?;
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
    }
}

/// Sends a browser on, to a page that says what was done.
fn done(path: &str, done: Done) -> HttpResponse {
    see_other(&format!("{path}?done={}", done.as_str()))
}
