//! The console's pages: each gathers its data by the calls of the API, or from the ledger as its handlers do.

mod fares;

use std::collections::HashMap;

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{CONTENT_DISPOSITION, CONTENT_TYPE},
    },
};
use console::{
    Bar, Deleted, Deliveries, DeliveryPage, Find, Found, Health, History, Listed, LogQuery, Paths, Progress, Range,
    RecoverForm, Settings, Stats, Told, WebhookForm, WebhookFrame, Webhooks,
};
use domain::{DeliveryId, WebhookId};
use ledger::{DeliveryFilter, NewRecovery, OwnWebhook, Page, Recoverable, Webhook};
use uuid::Uuid;

use super::{
    form::{Fields, beginning, faults},
    html,
    request::Asked,
    see_other,
};
use crate::{
    deliveries::{self, SEARCH_BUDGET},
    events::{self, explanation},
    http::{Answer, ApiError, Caller, Checked, Cursors, Id, Query, Violation, cut, fields::from_input},
    recoveries::{self, request::of_form},
    stats, webhooks,
};

/// How many deliveries a page of the log has, and how many entries a page of the history.
const ROWS: u16 = 40;
const ENTRIES: u16 = 20;

/// How many characters of a time are shown again.
const LONGEST_TIME: usize = 64;

/// The list of webhooks, the worst first.
pub(super) async fn webhooks(caller: Caller, asked: Asked) -> Answer {
    let mut found = caller.ledger.webhooks_all(caller.admin.tenant).await?;
    let mut by_health: Vec<(Health, u64)> = Vec::new();
    found.sort_by_cached_key(|webhook| (Health::urgency(webhook), webhook.settings.name.to_lowercase()));
    for health in found.iter().map(Health::of) {
        match by_health.last_mut() {
            Some((known, count)) if known.key() == health.key() => *count += 1,
            _ => by_health.push((health, 1)),
        }
    }
    let (search, health) = (asked.first("q").to_owned(), asked.first("health").to_owned());
    let wanted = search.to_lowercase();
    found.retain(|webhook| {
        let has_text = webhook.settings.name.to_lowercase().contains(&wanted)
            || webhook.settings.url.to_lowercase().contains(&wanted);
        has_text && (health.is_empty() || Health::of(webhook).key() == health)
    });
    let pages = found.len().div_ceil(Webhooks::LISTED).max(1);
    let page = asked.first("page").parse().unwrap_or(0).min(pages - 1);
    let shown: Vec<Webhook> = found.into_iter().skip(page * Webhooks::LISTED).take(Webhooks::LISTED).collect();
    let listed = with_hours(&caller, shown, &asked).await?;
    let view = Webhooks { search, health, listed, by_health, page: (page, pages) };
    Ok(html(StatusCode::OK, view.render(&asked.frame)))
}

async fn with_hours(caller: &Caller, shown: Vec<Webhook>, asked: &Asked) -> Result<Vec<Listed>, ApiError> {
    let period = fares::period(Range::Day, asked.frame.now);
    let ids: Vec<_> = shown.iter().map(|webhook| webhook.id).collect();
    let counts = caller.ledger.stats_by_webhook(caller.admin.tenant, &ids, (period.from, period.until)).await?;
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    let bars: HashMap<_, _> = counts
        .into_iter()
        .map(|hour| {
            let bar = Bar {
                from: hour.hour,
                succeeded: number(hour.succeeded),
                failed: number(hour.failed),
                dropped: number(hour.dropped),
            };
            ((hour.webhook, hour.hour), bar)
        })
        .collect();
    let of_hour =
        |id, from| bars.get(&(id, from)).copied().unwrap_or(Bar { from, succeeded: 0, failed: 0, dropped: 0 });
    let listed = |webhook: Webhook| {
        let hours = stats::steps(&period).map(|from| of_hour(webhook.id, from)).collect();
        Listed { webhook, hours }
    };
    Ok(shown.into_iter().map(listed).collect())
}

/// The form that registers a webhook.
pub(super) async fn register(_: Caller, asked: Asked) -> Answer {
    Ok(html(StatusCode::OK, WebhookForm::default().registration(&asked.frame, Uuid::now_v7())))
}

/// The deleted webhooks, the latest first.
pub(super) async fn deleted(caller: Caller, asked: Asked) -> Answer {
    let cursors = Cursors::of(Paths::DELETED);
    let page = Page { after: cursors.read(asked.first("cursor")), limit: Deleted::LISTED + 1 };
    let found = caller.ledger.deleted_webhooks(caller.admin.tenant, page).await?;
    let (webhooks, next) = cut(found, Deleted::LISTED, cursors, |webhook| webhook.entry);
    Ok(html(StatusCode::OK, Deleted { webhooks, next }.render(&asked.frame)))
}

/// The webhook, which may be deleted. Its log is there.
async fn framed(caller: &Caller, id: WebhookId) -> Result<(OwnWebhook, WebhookFrame), ApiError> {
    let own = webhooks::known(caller, id).await?;
    match webhooks::find(caller, id).await {
        Ok(webhook) => Ok((own, WebhookFrame::Live(Box::new(webhook)))),
        Err(ApiError::NotFound) => Ok((own, WebhookFrame::Deleted(webhooks::deleted(caller, id).await?))),
        Err(error) => Err(error),
    }
}

/// A webhook: its health, its statistics, and its log.
pub(super) async fn log(caller: Caller, Id(id): Id<WebhookId>, asked: Asked) -> Answer {
    let (own, webhook) = framed(&caller, id).await?;
    let range = Range::read(asked.first("range")).unwrap_or_default();
    let stats = match &webhook {
        WebhookFrame::Live(_) => Some(fares::of(&caller, own, range, asked.frame.now).await?),
        WebhookFrame::Deleted(_) | WebhookFrame::Expired(_) => None::<Stats>,
    };
    let mut query = LogQuery {
        state: asked.first("state").to_owned(),
        event_type: asked.first("event_type").to_owned(),
        from: asked.first("from").to_owned(),
        until: asked.first("until").to_owned(),
        cursor: asked.first("cursor").to_owned(),
        range: asked.first("range").to_owned(),
        faults: Vec::new(),
    };
    let (deliveries, next) = match read_log(&query, Cursors::of(&Paths::webhook(id))) {
        Ok(Query(page, filter, cursors)) => {
            let found = caller.ledger.delivery_list(own, filter, page, SEARCH_BUDGET).await?;
            (found.deliveries, found.next.map(|last| cursors.after(last.as_uuid())))
        }
        Err(violations) => {
            query.faults = faults(violations);
            (Vec::new(), None)
        }
    };
    let bodies = caller.ledger.bodies_find(&deliveries).await?;
    let page = Deliveries { webhook, stats, query, deliveries, bodies, next };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// Reads the log's filter as the API does.
fn read_log(query: &LogQuery, cursors: Cursors) -> Result<Query<DeliveryId, DeliveryFilter>, Vec<Violation>> {
    let (from, until) = (from_input(&query.from), from_input(&query.until));
    let given = [
        ("state", &*query.state),
        ("event_type", &*query.event_type),
        ("created_after", &*from),
        ("created_before", &*until),
        ("cursor", &*query.cursor),
    ];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let mut read = Query::of(given.map(|(name, value)| (name.into(), value.into())), cursors)?;
    read.0.limit = ROWS;
    Ok(read)
}

/// One delivery.
pub(super) async fn delivery(
    caller: Caller,
    Id(webhook): Id<WebhookId>,
    Id(id): Id<DeliveryId>,
    asked: Asked,
) -> Answer {
    let (own, webhook) = framed(&caller, webhook).await?;
    let found = deliveries::find(&caller, own, id).await?;
    let body = found.body.map(|body| String::from_utf8_lossy(&body).into_owned());
    let page = DeliveryPage { webhook, delivery: found.delivery, body, attempts: found.attempts };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// The body of a delivery, to download.
pub(super) async fn body(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<DeliveryId>) -> Answer {
    let own = webhooks::known(&caller, webhook).await?;
    let found = deliveries::find(&caller, own, id).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/json"))
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.json\"")))
        .body(found.body.ok_or(ApiError::NotFound)?))
}

/// A webhook's settings.
pub(super) async fn settings(caller: Caller, Id(id): Id<WebhookId>, asked: Asked) -> Answer {
    let webhook = webhooks::find(&caller, id).await?;
    let (form, shown) = (WebhookForm::of(&webhook.settings), webhook.settings.clone());
    let page = Settings { webhook, form, shown, kept_days: caller.kept_days() };
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// The history of a webhook, and its notices. The history of a deleted webhook is there for longer than the rest.
pub(super) async fn history(caller: Caller, Id(id): Id<WebhookId>, asked: Asked) -> Answer {
    let webhook = match framed(&caller, id).await {
        Ok((_, webhook)) => webhook,
        Err(ApiError::NotFound) => WebhookFrame::Expired(webhooks::deleted(&caller, id).await?),
        Err(error) => return Err(error),
    };
    let lists = ["cursor", "notices"].map(|name| {
        let cursors = Cursors::of(&format!("{}history/?{name}", Paths::webhook(id)));
        (Page { after: cursors.read(asked.first(name)), limit: ENTRIES + 1 }, cursors)
    });
    let [(page, cursors), (notices_page, notices_cursors)] = lists;
    let entries = caller.ledger.history_list(caller.admin.tenant, id, page).await?.ok_or(ApiError::NotFound)?;
    let (entries, next) = cut(entries, ENTRIES, cursors, |entry| entry.id);
    let notices = caller.ledger.notice_list(caller.admin.tenant, id, notices_page).await?.unwrap_or_default();
    let (notices, next_notices) = cut(notices, ENTRIES, notices_cursors, |notice| notice.notice_id);
    let view = History { webhook, entries, next, told: Told { notices, next: next_notices } };
    Ok(html(StatusCode::OK, view.render(&asked.frame)))
}

/// What a recovery would send, and how much that is.
pub(super) async fn recover(caller: Caller, Id(id): Id<WebhookId>, asked: Asked) -> Answer {
    let wanted = match asked.first("since") {
        "" => Ok(None),
        _ => of_form(&*asked).map(Some),
    };
    let page = recover_page(&caller, id, &asked, wanted).await?;
    Ok(html(StatusCode::OK, page.render(&asked.frame)))
}

/// The page of a recovery's form, with what was filled in, and how many deliveries that is.
pub(super) async fn recover_page(
    caller: &Caller,
    id: WebhookId,
    form: &Fields,
    wanted: Checked<Option<NewRecovery>>,
) -> Result<RecoverForm, ApiError> {
    let own = webhooks::known(caller, id).await?;
    let webhook = webhooks::find(caller, id).await?;
    let running = caller.ledger.recovery_running(own).await?;
    let [since, until] = ["since", "until"].map(|field| beginning(form.first(field), LONGEST_TIME));
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

/// The progress of a recovery.
pub(super) async fn recovery(caller: Caller, Id(webhook): Id<WebhookId>, Id(id): Id<Uuid>, asked: Asked) -> Answer {
    let (own, frame) = framed(&caller, webhook).await?;
    let recovery = caller.ledger.recovery_find(own, id).await?.ok_or(ApiError::NotFound)?;
    // A page that is refreshed every few seconds does not look at an attempt of each delivery.
    let is_of_all_outcomes = recovery.outcomes.is_empty();
    let (states, outcomes) = (recovery.states.clone(), recovery.outcomes.clone());
    // What it has passed, or what came after it was asked for, may be dropped again and is none of its work.
    let since = DeliveryId::from(recovery.reached).occurred_at().max(recovery.since);
    let until = recovery.until.map_or(recovery.created_at, |until| until.min(recovery.created_at));
    let rest = NewRecovery { since, until: Some(until), states, outcomes };
    let left = match (&frame, recovery.finished_at) {
        (WebhookFrame::Live(_), None) if is_of_all_outcomes => Some(recoveries::count(&caller, webhook, &rest).await?),
        _ => None,
    };
    Ok(html(StatusCode::OK, Progress { webhook: frame, recovery, left }.render(&asked.frame)))
}

/// What became of an event, or the page of a delivery or a webhook.
pub(super) async fn find(caller: Caller, asked: Asked) -> Answer {
    let id = asked.first("id");
    let found = match Uuid::try_parse(id) {
        _ if id.is_empty() => Found::Nothing,
        Err(_) => Found::NoId,
        Ok(uuid) => match look_up(&caller, uuid).await? {
            Ok(path) => return Ok(see_other(&path)),
            Err(found) => found,
        },
    };
    Ok(html(StatusCode::OK, Find { id, found, explain: explanation }.render(&asked.frame)))
}

/// The page that an id leads to, or the events that have it.
async fn look_up(caller: &Caller, id: Uuid) -> Result<Result<String, Found>, ApiError> {
    if let Ok(delivery) = id.to_string().parse()
        && let Some(webhook) = caller.ledger.delivery_webhook(caller.admin.tenant, delivery).await?
    {
        return Ok(Ok(Paths::delivery(webhook.id(), delivery)));
    }
    match webhooks::known(caller, id.into()).await {
        Ok(_) => return Ok(Ok(Paths::webhook(id.into()))),
        Err(ApiError::NotFound) => {}
        Err(error) => return Err(error),
    }
    match webhooks::deleted(caller, id.into()).await {
        Ok(webhook) => return Ok(Ok(Paths::of_webhook(webhook.id, "history"))),
        Err(ApiError::NotFound) => {}
        Err(error) => return Err(error),
    }
    match events::find(caller, id.into()).await {
        Ok(events) => Ok(Err(Found::Events(id.into(), events))),
        Err(unknown @ ApiError::UnknownEvent) => Ok(Err(Found::Unknown(unknown.to_string()))),
        Err(error) => Err(error),
    }
}
