//! The keys of programs.

use actix_web::http::StatusCode;
use console::{CreatedKey, Done, KeyList, Paths, WebhookForm};
use domain::KeyId;
use ledger::{ApiKey, Page};
use uuid::Uuid;

use super::{
    Form, PageRequest, done, html,
    register::{id_of_form, number_of_form},
    see_other,
};
use crate::{
    http::{ApiError, Caller, HandlerResult},
    keys,
};

/// Answers with the keys, and the form that creates one.
pub(super) async fn list(caller: Caller, asked: PageRequest) -> HandlerResult {
    let list = read(&caller, WebhookForm::default(), Uuid::now_v7()).await?;
    Ok(html(StatusCode::OK, list.render(&asked.frame)))
}

/// Creates a key, and shows it. A second post of the same form finds the key created.
pub(super) async fn create(caller: Caller, asked: PageRequest, form: Form) -> HandlerResult {
    let number = number_of_form(&form)?;
    let settings = match keys::settings(&*form, &caller.rules) {
        Ok(settings) => settings,
        Err(violations) => {
            let list = read(&caller, form.filled_in(violations), number).await?;
            return Ok(html(StatusCode::UNPROCESSABLE_ENTITY, list.render(&asked.frame)));
        }
    };
    match keys::create(&caller, id_of_form(&caller.admin, number).into(), settings).await {
        Ok((key, text)) => Ok(html(StatusCode::OK, CreatedKey { key: &key, text: &text }.render(&asked.frame))),
        Err(ApiError::CreatedBefore) => Ok(done(Paths::KEYS, Done::KeyCreated)),
        Err(error) => Err(error),
    }
}

/// Revokes a key, once the form confirms that. A key that is revoked already stays revoked.
pub(super) async fn revoke(caller: Caller, form: Form) -> HandlerResult {
    if form.first("confirmed") != "yes" {
        return Ok(see_other(Paths::KEYS));
    }
    let id: KeyId = form.first("key").parse().map_err(|_| ApiError::NotFound)?;
    match keys::revoke(&caller, id).await {
        Ok(()) | Err(ApiError::NotFound) => Ok(done(Paths::KEYS, Done::KeyRevoked)),
        Err(error) => Err(error),
    }
}

async fn read(caller: &Caller, form: WebhookForm, number: Uuid) -> Result<KeyList, ApiError> {
    let all = Page { after: None, limit: ApiKey::MAX_PER_TENANT };
    let keys = caller.ledger.key_list(caller.admin.tenant, all).await?;
    Ok(KeyList { keys, form, number })
}
