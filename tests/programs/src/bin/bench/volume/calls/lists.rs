//! Lists, with each filter, first and last page.

use domain::{DeliveryId, DeliveryState, EventType};
use end_to_end::api::cursor_after;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use super::{CALLS_PER_KIND, Call, Calls};
use crate::volume::{SESSION_LIFETIME, Volume};

const PAGE_ROWS: u32 = 50;
const LIST_PATH: &str = "/webhooks/{id}/deliveries/";
/// The last page is searched within this time from the oldest delivery on. It has some of every kind that exists.
const OLDEST_PERIOD: Duration = Duration::days(2);

/// One list of deliveries to ask for.
pub(super) struct Variant {
    group: String,
    path: String,
}

/// A filter, as a query string and as SQL.
struct Filter {
    kind: &'static str,
    query: String,
    condition: String,
    /// Nothing older passes the filter.
    since: Option<OffsetDateTime>,
}

/// Every list of deliveries. Searches the ledger for the last pages.
pub(super) async fn variants(volume: &Volume<'_>) -> Vec<Variant> {
    let seeded = &volume.seeded;
    let webhooks = [("history", seeded.history, 30), ("waiting", seeded.waiting, 6), ("small", seeded.small, 6)];
    let (mut variants, now) = (Vec::new(), OffsetDateTime::now_utc());
    for (name, webhook, days) in webhooks {
        let oldest = now - Duration::days(days);
        for filter in filters(now - Duration::days(days) / 2) {
            let list = format!("{}deliveries/", volume.path(webhook));
            let path = format!("{list}?limit={PAGE_ROWS}{}", filter.query);
            let group = format!("list_{name}_{}", filter.kind);
            if let Some(last) = last_page(volume, webhook, &filter, oldest).await {
                let path = format!("{path}&cursor={}", cursor_after(&list, last));
                variants.push(Variant { group: format!("{group}_last"), path });
            }
            variants.push(Variant { group: format!("{group}_first"), path });
        }
    }
    variants
}

/// Asks for all of them, and for the webhooks of the tenants that have many.
pub(super) async fn measure(calls: &mut Calls, volume: &Volume<'_>, variants: &[Variant]) {
    for Variant { group, path } in variants {
        calls
            .repeat((group, path), &volume.admin, (0..CALLS_PER_KIND).map(|_| Call::get(LIST_PATH, path.clone())))
            .await;
    }
    let full = volume.environment.system.session(volume.seeded.full, "admin", SESSION_LIFETIME).await;
    for (admin, tenant) in [(&volume.admin, volume.seeded.large), (&full, volume.seeded.full)] {
        let last =
            format!("SELECT id::text FROM webhooks WHERE tenant_id = '{tenant}' ORDER BY id DESC OFFSET 10 LIMIT 1");
        let rows = volume.environment.rows(&last).await;
        let last: Uuid = rows[0].get::<_, &str>(0).parse().expect("it is an id");
        let first = format!("/api/v1/webhooks/?limit={PAGE_ROWS}");
        let last = format!("{first}&cursor={}", cursor_after("/api/v1/webhooks/", last));
        for (group, path) in [("webhooks_first", first), ("webhooks_last", last)] {
            calls
                .repeat(
                    (group, &tenant.to_string()),
                    admin,
                    (0..CALLS_PER_KIND).map(|_| Call::get("/webhooks/", path.clone())),
                )
                .await;
        }
        for (kind, list, query) in OF_TENANT {
            let path = format!("/api/v1{list}?limit={PAGE_ROWS}{query}");
            let variant = format!("{path} {tenant}");
            let asked = (0..CALLS_PER_KIND).map(|_| Call::get(list, path.clone()));
            calls.repeat((kind, &variant), admin, asked).await;
        }
    }
}

/// Lists of a whole tenant: the name of each, its path and its filter.
const OF_TENANT: [(&str, &str, &str); 7] = [
    ("tenant_all", "/deliveries/", ""),
    ("tenant_by_state", "/deliveries/", "&state=dropped,skipped"),
    ("tenant_by_type", "/deliveries/", "&event_type=return_note.created"),
    ("tenant_tests", "/deliveries/", "&is_test=true"),
    ("tenant_by_outcome", "/deliveries/", "&outcome=tls"),
    ("tenant_by_text", "/deliveries/", "&contains=no%20body%20has%20this"),
    ("tenant_history", "/history/", ""),
];

/// No filter, each filter alone, and filters together.
fn filters(middle: OffsetDateTime) -> Vec<Filter> {
    let middle = middle.replace_nanosecond(0).expect("0 is good");
    let text = middle.format(&Rfc3339).expect("it can be written");
    let filter = |kind, query: String, condition: String| Filter { kind, query, condition, since: None };
    let state = |state: DeliveryState| (format!("&state={state}"), format!("state = '{state}'"));
    let of_type = |of: EventType| (format!("&event_type={of}"), format!("event_type = '{of}'"));
    let bound = DeliveryId::bound_at(middle);
    let after = (format!("&occurred_after={text}"), format!("id >= '{bound}'"));
    let before = (format!("&occurred_before={text}"), format!("id < '{bound}'"));
    let both = |one: &(String, String), two: &(String, String)| {
        (format!("{}{}", one.0, two.0), format!("{} AND {}", one.1, two.1))
    };
    let mut filters = vec![filter("all", String::new(), "true".to_owned())];
    for one in DeliveryState::ALL {
        let (query, condition) = state(one);
        filters.push(filter("by_state", query, condition));
        for two in [EventType::QuoteClosed, EventType::ReturnNoteCreated, EventType::StockReceiptCompleted] {
            let (query, condition) = both(&state(one), &of_type(two));
            filters.push(filter("by_state_and_type", query, condition));
        }
        let (query, condition) = both(&state(one), &before);
        filters.push(filter("by_state_and_time", query, condition));
        let (query, condition) = both(&state(one), &after);
        filters.push(Filter { since: Some(middle), ..filter("by_state_and_time", query, condition) });
    }
    for one in EventType::ALL {
        let (query, condition) = of_type(one);
        filters.push(filter("by_type", query, condition));
        let (query, condition) = both(&of_type(one), &before);
        filters.push(filter("by_type_and_time", query, condition));
    }
    filters.push(filter("by_time", before.0.clone(), before.1.clone()));
    filters.push(Filter { since: Some(middle), ..filter("by_time", after.0.clone(), after.1.clone()) });
    let everything = both(&both(&state(DeliveryState::Dropped), &of_type(EventType::QuoteClosed)), &after);
    filters.push(Filter { since: Some(middle), ..filter("by_everything", everything.0, everything.1) });
    filters
}

/// The delivery before the last page, if there are two pages.
async fn last_page(volume: &Volume<'_>, webhook: Uuid, filter: &Filter, oldest: OffsetDateTime) -> Option<Uuid> {
    let from = filter.since.unwrap_or(oldest);
    let bound = |moment: OffsetDateTime| {
        DeliveryId::bound_at_millis(u64::try_from(moment.unix_timestamp()).unwrap_or_default() * 1000)
    };
    let (first, beyond, condition) = (bound(from), bound(from + OLDEST_PERIOD), &filter.condition);
    let rows = volume
        .environment
        .rows(&format!(
            "SELECT id::text FROM deliveries WHERE webhook_id = '{webhook}' AND id >= '{first}' AND id < '{beyond}' \
             AND {condition} ORDER BY id OFFSET {PAGE_ROWS} LIMIT 1"
        ))
        .await;
    rows.first()?.get::<_, &str>(0).parse().ok()
}
