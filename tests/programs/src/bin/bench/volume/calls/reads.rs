//! Reads single things: webhooks, deliveries with their attempts, a recovery, and what is the same for everybody.

use std::iter::repeat_with;

use domain::DeliveryId;
use end_to_end::api::cursor_after;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use super::{CALLS_PER_KIND, Call, Calls};
use crate::volume::Volume;

/// The paths that need no id.
const PLAIN_PATHS: [&str; 5] = ["/event-types/", "/openapi.json", "/asyncapi.yaml", "/docs/", "/docs/style.css"];

/// Asks for all of them. `recovery` is a recovery of the long history.
pub(super) async fn measure(calls: &mut Calls, volume: &Volume<'_>, recovery: &str) {
    let (seeded, admin) = (&volume.seeded, &volume.admin);
    for webhook in [seeded.history, seeded.waiting, seeded.small] {
        let path = volume.path(webhook);
        let read = repeat_with(|| Call::get("/webhooks/{id}/", path.clone()));
        calls.repeat(("webhook", &path), admin, read).await;
        let deliveries = deliveries(volume, webhook).await;
        let read = |id: Uuid| Call::get("/webhooks/{id}/deliveries/{delivery_id}/", format!("{path}deliveries/{id}/"));
        let events = events(volume, &deliveries).await;
        calls.repeat(("delivery", &path), admin, deliveries.iter().copied().map(read)).await;
        let read = |id: Uuid| Call::get("/deliveries/{delivery_id}/", format!("/api/v1/deliveries/{id}/"));
        calls.repeat(("delivery_by_id", &path), admin, deliveries.into_iter().map(read)).await;
        let read = |id: Uuid| Call::get("/events/{event_id}/", format!("/api/v1/events/{id}/"));
        calls.repeat(("event", &path), admin, events.into_iter().map(read)).await;
    }
    insight(calls, volume).await;
    let path = format!("{}recover/{recovery}/", volume.path(seeded.history));
    let read = repeat_with(|| Call::get("/webhooks/{id}/recover/{recovery_id}/", path.clone()));
    calls.repeat(("recovery_read", &path), admin, read).await;
    for part in
        ["", "?range=30d", "?state=dropped", "history/", "settings/", "recover/?since=2020-01-01T00:00&states=dropped"]
    {
        let page = path_of_page(volume.seeded.history, part);
        let read = repeat_with(|| Call::get("/console/", page.clone()));
        calls.repeat(("console", part), admin, read).await;
    }
    calls.repeat(("console", "list"), admin, repeat_with(|| Call::get("/console/", "/console/".to_owned()))).await;
    for template in PLAIN_PATHS {
        let read = repeat_with(|| Call::get(template, format!("/api/v1{template}")));
        calls.repeat(("plain", template), admin, read).await;
    }
    let schema = repeat_with(|| Call::get("/schemas/{file}", "/api/v1/schemas/envelope.schema.json".to_owned()));
    calls.repeat(("plain", "schema"), admin, schema).await;
}

fn path_of_page(webhook: Uuid, part: &str) -> String {
    format!("/console/webhooks/{webhook}/{part}")
}

/// The longest statistics, and the first and the last pages of a long list of notices and of a long history.
async fn insight(calls: &mut Calls, volume: &Volume<'_>) {
    let (path, now) = (volume.path(volume.seeded.history), OffsetDateTime::now_utc());
    for (step, days) in [("hour", 31), ("day", 92)] {
        let from = (now - Duration::days(days) + Duration::HOUR).format(&Rfc3339).expect("it can be written");
        let read = format!("{path}stats/?step={step}&from={from}");
        let read = repeat_with(|| Call::get("/webhooks/{id}/stats/", read.clone()));
        calls.repeat(("stats", step), &volume.admin, read).await;
    }
    for (group, template) in [("notices", "/webhooks/{id}/notices/"), ("history", "/webhooks/{id}/history/")] {
        let last = format!("SELECT id::text FROM {group} ORDER BY id OFFSET 50 LIMIT 1");
        let last: Uuid = volume.environment.rows(&last).await[0].get::<_, &str>(0).parse().expect("it is an id");
        let list = format!("{path}{group}/");
        for page in ["".to_owned(), format!("&cursor={}", cursor_after(&list, last))] {
            let read = repeat_with(|| Call::get(template, format!("{list}?limit=50{page}")));
            calls.repeat((group, &page), &volume.admin, read).await;
        }
    }
}

/// The events of these deliveries.
async fn events(volume: &Volume<'_>, deliveries: &[Uuid]) -> Vec<Uuid> {
    let ids: Vec<String> = deliveries.iter().map(Uuid::to_string).collect();
    let read = format!("SELECT event_id::text FROM deliveries WHERE id = ANY ('{{{}}}'::uuid[])", ids.join(","));
    let rows = volume.environment.rows(&read).await;
    rows.iter().map(|row| row.get::<_, &str>(0).parse().expect("it is an id")).collect()
}

/// Deliveries of a webhook, from the whole time that it has some.
pub(super) async fn deliveries(volume: &Volume<'_>, webhook: Uuid) -> Vec<Uuid> {
    let now = OffsetDateTime::now_utc();
    let moment = |nth: usize| now - Duration::days(29) * i32::try_from(nth).unwrap_or_default() / 100;
    let bound = |moment: OffsetDateTime| {
        DeliveryId::bound_at_millis(u64::try_from(moment.unix_timestamp()).unwrap_or_default() * 1000)
    };
    let bounds: Vec<String> = (1..=CALLS_PER_KIND).map(|nth| bound(moment(nth)).to_string()).collect();
    let rows = volume
        .environment
        .rows(&format!(
            "SELECT DISTINCT id::text FROM unnest('{{{}}}'::uuid[]) AS bound CROSS JOIN LATERAL \
               (SELECT id FROM deliveries WHERE webhook_id = '{webhook}' AND id >= bound ORDER BY id LIMIT 1) AS found",
            bounds.join(",")
        ))
        .await;
    rows.iter().map(|row| row.get::<_, &str>(0).parse().expect("it is an id")).collect()
}
