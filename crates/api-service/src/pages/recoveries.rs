//! Recoveries: the form that begins one, and the progress of one.

use std::collections::HashSet;

use actix_web::http::StatusCode;
use console::{Done, Paths, RecoverForm, RecoveryProgress, WebhookFrame};
use domain::{DeliveryId, WebhookId};
use ledger::{NewRecovery, Recover, Recoverable, Recovery};
use uuid::Uuid;

use super::{
    Form, FormFields, PageRequest, done,
    form::{beginning, faults},
    framed, html, see_other,
};
use crate::{
    http::{ApiError, Caller, Checked, HandlerResult, Id},
    recoveries::{self, request::of_form},
    webhooks,
};

/// The maximum of characters of a time that are shown again.
const MAX_TIME_CHARS: usize = 64;

/// Answers with the form, and with the number of deliveries that a recovery would resend.
pub(super) async fn form(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest) -> HandlerResult {
    let wanted = match asked.first("since") {
        "" => Ok(None),
        _ => of_form(&*asked).map(Some),
    };
    let page = page_of(&caller, id, &asked, wanted).await?;
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// Returns the page of the form as it was filled in, with the number of deliveries or with the faults.
async fn page_of(
    caller: &Caller,
    id: WebhookId,
    form: &FormFields,
    wanted: Checked<Option<NewRecovery>>,
) -> Result<RecoverForm, ApiError> {
    let own = webhooks::known(caller, id).await?;
    let webhook = webhooks::find(caller, id).await?;
    let running = caller.ledger.recovery_running(own).await?;
    let [since, until] = ["since", "until"].map(|field| beginning(form.first(field), MAX_TIME_CHARS));
    let states = match &*since {
        "" => Recoverable::ALL.to_vec(),
        _ => {
            Recoverable::ALL.into_iter().filter(|state| form.all("states").any(|name| name == state.as_str())).collect()
        }
    };
    let (count, faults) = match wanted {
        Ok(Some(wanted)) => (Some(recoveries::count(caller, id, &wanted).await?), Vec::new()),
        Ok(None) => (None, Vec::new()),
        Err(violations) => (None, faults(violations)),
    };
    Ok(RecoverForm { webhook, since, until, states, faults, count, running })
}

/// Begins a recovery, or leads to the one that is running.
pub(super) async fn begin(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest, form: Form) -> HandlerResult {
    match of_form(&*form) {
        Ok(wanted) => {
            Ok(match recoveries::begin(&caller, id, &wanted).await? {
                Recover::Running(other) if !is_of(&other, &wanted) => {
                    done(&Paths::recovery(id, other.id), Done::Another)
                }
                // A second post of the form finds the recovery that the first one has begun.
                Recover::Begun(recovery) | Recover::Running(recovery) => see_other(&Paths::recovery(id, recovery.id)),
            })
        }
        Err(violations) => {
            let page = page_of(&caller, id, &form, Err(violations)).await?;
            Ok(html(StatusCode::UNPROCESSABLE_ENTITY, page.render(&asked.frame)))
        }
    }
}

/// Returns true if a recovery is the one that was asked for. Another one may have been running.
fn is_of(recovery: &Recovery, wanted: &NewRecovery) -> bool {
    let states = |states: &[Recoverable]| states.iter().copied().collect::<HashSet<_>>();
    (recovery.since, recovery.until) == (wanted.since, wanted.until)
        && states(&recovery.states) == states(&wanted.states)
        && recovery.outcomes == wanted.outcomes
}

/// Answers with the progress of a recovery.
pub(super) async fn progress(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<Uuid>,
    asked: PageRequest,
) -> HandlerResult {
    let (own, frame) = framed(&caller, webhook).await?;
    let recovery = caller.ledger.recovery_find(own, id).await?.ok_or(ApiError::NotFound)?;
    // A page that is refreshed every few seconds does not look at an attempt of each delivery.
    let is_of_all_outcomes = recovery.outcomes.is_empty();
    let (states, outcomes) = (recovery.states.clone(), recovery.outcomes.clone());
    // Deliveries that the recovery has passed, or that came after its request, may be dropped again: it does not resend them.
    let since = DeliveryId::from(recovery.cursor).occurred_at().max(recovery.since);
    let until = recovery.until.map_or(recovery.created_at, |until| until.min(recovery.created_at));
    let rest = NewRecovery { since, until: Some(until), states, outcomes };
    let left = match (&frame, recovery.finished_at) {
        (WebhookFrame::Live(_), None) if is_of_all_outcomes => Some(recoveries::count(&caller, webhook, &rest).await?),
        _ => None,
    };
    Ok(html(StatusCode::OK, RecoveryProgress { webhook: frame, recovery, left }.render(&asked.frame)))
}
