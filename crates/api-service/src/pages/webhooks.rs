//! The list of webhooks, and the list of deleted webhooks.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use console::{Bar, Deleted, Health, Listed, Paths, Range, Webhooks};
use ledger::{Page, Webhook};

use super::{PageRequest, html, stats};
use crate::{
    http::{ApiError, Caller, Cursors, HandlerResult, cut},
    stats::steps,
};

/// Answers with the list of webhooks, the worst first.
pub(super) async fn list(caller: Caller, asked: PageRequest) -> HandlerResult {
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
    let pages = found.len().div_ceil(Webhooks::MAX_LISTED).max(1);
    let page = asked.first("page").parse().unwrap_or(0).min(pages - 1);
    let shown: Vec<Webhook> = found.into_iter().skip(page * Webhooks::MAX_LISTED).take(Webhooks::MAX_LISTED).collect();
    let listed = with_hours(&caller, shown, &asked).await?;
    let view = Webhooks { search, health, listed, by_health, page: (page, pages) };
    Ok(html(StatusCode::OK, view.render(&asked.frame)))
}

/// Adds the attempts of the last 24 hours to webhooks.
async fn with_hours(caller: &Caller, shown: Vec<Webhook>, asked: &PageRequest) -> Result<Vec<Listed>, ApiError> {
    let period = stats::period(Range::DAY, asked.frame.now);
    let ids: Vec<_> = shown.iter().map(|webhook| webhook.id).collect();
    let counts = caller.ledger.stats_by_webhook(caller.admin.tenant, &ids, (period.from, period.until)).await?;
    let bar = |from, [succeeded, failed, dropped]: [i64; 3]| {
        let [succeeded, failed, dropped] =
            [succeeded, failed, dropped].map(|count| u64::try_from(count).unwrap_or_default());
        Bar { from, succeeded, failed, dropped }
    };
    let bars: HashMap<_, _> = counts
        .into_iter()
        .map(|of| ((of.webhook, of.hour), bar(of.hour, [of.succeeded, of.failed, of.dropped])))
        .collect();
    let of_hour = |id, from| bars.get(&(id, from)).copied().unwrap_or_else(|| bar(from, [0; 3]));
    let listed = |webhook: Webhook| {
        let hours = steps(&period).map(|from| of_hour(webhook.id, from)).collect();
        Listed { webhook, hours }
    };
    Ok(shown.into_iter().map(listed).collect())
}

/// Answers with the deleted webhooks, the latest first.
pub(super) async fn list_deleted(caller: Caller, asked: PageRequest) -> HandlerResult {
    let cursors = Cursors::of(Paths::DELETED);
    let page = Page { after: cursors.read(asked.first("cursor")), limit: Deleted::MAX_LISTED + 1 };
    let found = caller.ledger.deleted_webhooks(caller.admin.tenant, page).await?;
    let (webhooks, next) = cut(found, Deleted::MAX_LISTED, cursors, |webhook| webhook.entry);
    Ok(html(StatusCode::OK, Deleted { webhooks, next }.render(&asked.frame)))
}
