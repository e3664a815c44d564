//! Recoveries: the form that begins one, the list of a webhook's recoveries, the progress of one, and its stop.

use std::collections::HashSet;

use actix_web::http::StatusCode;
use console::{Done, Paths, RecoverForm, RecoveryProgress, WebhookFrame};
use domain::{DeliveryId, EventType, WebhookId};
use ledger::{NewRecovery, Page, Recover, Recoverable, Recovery};
use uuid::Uuid;

use super::{
    Form, FormFields, PageRequest, done,
    form::{beginning, faults},
    framed, html, see_other,
};
use crate::{
    http::{ApiError, Caller, Checked, Cursors, HandlerResult, Id, cut},
    recoveries::{self, request::of_form},
    webhooks,
};

/// The maximum of characters of a time that are shown again.
const MAX_TIME_CHARS: usize = 64;

/// The maximum of recoveries on a page.
const PAGE_RECOVERIES: u16 = 10;

/// Answers with the form, and with the number of deliveries that a recovery would resend.
pub(super) async fn form(caller: Caller, Id(id): Id<WebhookId>, asked: PageRequest) -> HandlerResult {
    let wanted = match asked.first("from") {
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
    let [from, to] = ["from", "to"].map(|field| beginning(form.first(field), MAX_TIME_CHARS));
    let states = match &*from {
        "" => Recoverable::ALL.to_vec(),
        _ => {
            Recoverable::ALL.into_iter().filter(|state| form.all("states").any(|name| name == state.as_str())).collect()
        }
    };
    let has_type = |known: &EventType| form.all("event_types").any(|name| name == known.as_str());
    let event_types = EventType::ALL.into_iter().filter(has_type).collect();
    let (counted, faults) = match wanted {
        Ok(Some(wanted)) => {
            let counted = recoveries::count(caller, id, &wanted).await?;
            (Some((wanted, counted)), Vec::new())
        }
        Ok(None) => (None, Vec::new()),
        Err(violations) => (None, faults(violations)),
    };
    let cursors = Cursors::of(&Paths::of_webhook(id, "recover"));
    let page = Page { after: cursors.read(form.first("cursor")), limit: PAGE_RECOVERIES + 1 };
    let found = caller.ledger.recovery_list(own, page).await?;
    let (recoveries, next) = cut(found, PAGE_RECOVERIES, cursors, |recovery| recovery.id);
    Ok(RecoverForm { webhook, from, to, states, event_types, faults, counted, recoveries, next })
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
    let types = |types: &[EventType]| types.iter().copied().collect::<HashSet<_>>();
    (recovery.since, recovery.until) == (wanted.since, wanted.until)
        && states(&recovery.states) == states(&wanted.states)
        && recovery.outcomes == wanted.outcomes
        && types(&recovery.event_types) == types(&wanted.event_types)
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
    // A page that is refreshed every few seconds looks up no delivery.
    let is_of_all = recovery.outcomes.is_empty() && recovery.event_types.is_empty();
    let states = recovery.states.clone();
    // Deliveries that the recovery has passed, or that came after its request, may be dropped again: it does not resend them.
    let since = DeliveryId::from(recovery.cursor).occurred_at().max(recovery.since);
    let until = recovery.until.map_or(recovery.created_at, |until| until.min(recovery.created_at));
    let rest = NewRecovery { since, until: Some(until), states, outcomes: Vec::new(), event_types: Vec::new() };
    let left = match (&frame, recovery.finished_at) {
        (WebhookFrame::Live(_), None) if is_of_all => Some(recoveries::count(&caller, webhook, &rest).await?),
        _ => None,
    };
    Ok(html(StatusCode::OK, RecoveryProgress { webhook: frame, recovery, left }.render(&asked.frame)))
}

/// Stops a recovery, and leads to its page.
pub(super) async fn stop(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<Uuid>, _: Form) -> HandlerResult {
    recoveries::stop(&caller, webhook, id).await?;
    Ok(see_other(&Paths::recovery(webhook, id)))
}
