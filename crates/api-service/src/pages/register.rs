//! The registration of a webhook.

use actix_web::{HttpResponse, http::StatusCode};
use console::{Done, FieldFault, Frame, Paths, RegisteredWebhook, WebhookForm};
use domain::{WebhookId, visible};
use ledger::{Actor, Webhook};
use ring::digest::{SHA256, digest};
use time::{Duration, OffsetDateTime};
use uuid::{Builder, Uuid};

use super::{Form, FormFields, PageRequest, done, html};
use crate::{
    docs::RECEIVERS,
    http::{ApiError, Caller, HandlerResult},
    webhooks::{self, settings},
};

/// The longest time that a form of registration may be open.
const MAX_FORM_AGE: Duration = Duration::days(2);

/// Answers with the form that registers a webhook.
pub(super) async fn form(_: Caller, asked: PageRequest) -> HandlerResult {
    Ok(html(StatusCode::OK, WebhookForm::default().registration(&asked.frame, Uuid::now_v7())))
}

/// Registers a webhook, and shows its secret. A second post of the same form finds the webhook registered.
pub(super) async fn register(caller: Caller, asked: PageRequest, form: Form) -> HandlerResult {
    let number = number_of_form(&form)?;
    let new = match settings::registration(&*form, &caller.rules) {
        Ok(new) => new,
        Err(violations) => {
            let again = form.filled_in(violations);
            return Ok(html(StatusCode::UNPROCESSABLE_ENTITY, again.registration(&asked.frame, number)));
        }
    };
    let (mut wanted, header_names) = (new.settings.clone(), new.headers.names());
    let id = WebhookId::from(id_of_form(&caller.admin, number));
    match webhooks::register(&caller, id, new).await {
        Ok((webhook, secret)) => {
            let page = RegisteredWebhook { webhook: &webhook, secret: secret.expose(), receivers: &RECEIVERS };
            Ok(html(StatusCode::OK, page.render(&asked.frame)))
        }
        Err(ApiError::RegisteredBefore(_)) => match webhooks::find(&caller, id).await {
            Ok(Webhook { settings: registered, header_names: names, .. }) => {
                wanted.is_active = registered.is_active;
                wanted.external_id.clone_from(&registered.external_id);
                match wanted.changes(&registered).is_empty() && header_names == names {
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

/// Answers with a form that has registered a webhook and was filled in anew, with another number.
fn filled_in_anew(frame: &Frame, form: &FormFields, registered: &str) -> HttpResponse {
    let mut again = form.filled_in(Vec::new());
    again.faults.push(FieldFault {
        field: String::new(),
        message: format!(
            "This form has registered the webhook {} already. Press Register to register this one too.",
            visible(registered)
        ),
    });
    html(StatusCode::CONFLICT, again.registration(frame, Uuid::now_v7()))
}

/// Returns the number of a form that makes something.
pub(super) fn number_of_form(form: &FormFields) -> Result<Uuid, ApiError> {
    form.first("form").parse().ok().filter(is_recent).ok_or(ApiError::StaleForm)
}

/// Returns the id of what a form makes, the same for each post of the form. Nobody can choose an id of another tenant by
/// it.
pub(super) fn id_of_form(admin: &Actor, form: Uuid) -> Uuid {
    let mine = digest(&SHA256, &[admin.tenant.as_uuid().as_bytes().as_slice(), form.as_bytes()].concat());
    let mut bytes = *form.as_bytes();
    bytes[6..].copy_from_slice(&mine.as_ref()[..10]);
    Builder::from_bytes(bytes).with_version(uuid::Version::SortRand).with_variant(uuid::Variant::RFC4122).into_uuid()
}

fn is_recent(form: &Uuid) -> bool {
    let made = form.get_timestamp().and_then(|made| {
        let (seconds, _) = made.to_unix();
        OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()
    });
    made.is_some_and(|made| (OffsetDateTime::now_utc() - made).abs() < MAX_FORM_AGE)
}
