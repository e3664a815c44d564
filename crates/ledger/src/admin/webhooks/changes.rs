//! Changes and deletions by administrators.

use std::collections::BTreeSet;

use diesel::{prelude::*, sql_types::Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{EventType, NoticeType, WebhookId};
use serde_json::{Value, json};

use super::{Webhook, names, of, shown};
use crate::{
    admin::{
        history::{Action, Actor, add_history},
        notices::add_notice,
        tasks::begin_cancellation,
    },
    error::LedgerError,
    hot::held_jobs::wake_all,
    pool::Ledger,
    tables::webhooks,
};

/// A change of a webhook. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookChange {
    /// The label.
    pub name: Option<String>,
    /// The destination.
    pub url: Option<String>,
    /// What it is subscribed to.
    pub events: Option<Vec<EventType>>,
    /// Whether it takes deliveries.
    pub is_active: Option<bool>,
}

#[derive(AsChangeset)]
#[diesel(table_name = webhooks)]
struct ChangeRow<'a> {
    name: Option<&'a str>,
    url: Option<&'a str>,
    events: Option<Vec<&'a str>>,
    is_active: Option<bool>,
}

/// A webhook before its change.
#[derive(Queryable, Selectable)]
#[diesel(table_name = webhooks, check_for_backend(diesel::pg::Pg))]
struct Before {
    name: String,
    url: String,
    events: Vec<String>,
    is_active: bool,
}

/// Ends the running recovery of webhook `$1`, if there is one. A step under way is waited for.
pub(crate) const END_RECOVERIES: &str =
    "UPDATE recoveries SET finished_at = now() WHERE webhook_id = $1 AND finished_at IS NULL";

impl Ledger {
    /// Changes one of the tenant's webhooks, unless it has all of the values already. When it becomes active,
    /// [`Ledger::jobs_wake`] publishes its held jobs.
    pub async fn webhook_change(
        &self,
        actor: &Actor,
        id: WebhookId,
        change: &WebhookChange,
    ) -> Result<Option<Webhook>, LedgerError> {
        let tenant = actor.tenant;
        let found = self
            .run("webhook_change", async |conn| {
                conn.transaction(async |conn| {
                    let one = webhooks::table.filter(of(tenant).and(webhooks::id.eq(id.as_uuid())));
                    let before = one.select(Before::as_select()).for_no_key_update();
                    let before: Option<Before> = before.first(conn).await.optional()?;
                    let Some(before) = before else { return Ok(None) };
                    let changed = change.changed(&before);
                    if !changed.is_empty() {
                        let is_paused = change.is_active == Some(false) && before.is_active;
                        let paused_at = is_paused.then(|| webhooks::paused_at.eq(diesel::dsl::now));
                        let row = (change.row(&before), webhooks::updated_at.eq(diesel::dsl::now), paused_at);
                        diesel::update(one).set(row).execute(conn).await?;
                        tell(conn, actor, id, changed, &before).await?;
                    }
                    if change.is_active == Some(true) && !before.is_active {
                        wake_all(conn, id.as_uuid()).await?;
                    }
                    shown(conn, tenant, id).await
                })
                .await
            })
            .await?;
        found.map(|(row, health, backlog)| row.read(health, backlog)).transpose()
    }

    /// Deletes one of the tenant's webhooks. It gets nothing more. Its waiting deliveries count as cancelled, and
    /// [`Ledger::cancellation_step`] marks them so. Its history stays. Returns `false` when there is no such webhook.
    pub async fn webhook_delete(&self, actor: &Actor, id: WebhookId) -> Result<bool, LedgerError> {
        self.run("webhook_delete", async |conn| {
            conn.transaction(async |conn| {
                let one = webhooks::table.filter(of(actor.tenant).and(webhooks::id.eq(id.as_uuid())));
                let gone = (webhooks::deleted_at.eq(diesel::dsl::now), webhooks::is_active.eq(false));
                let deleted = diesel::update(one).set(gone).returning((webhooks::name, webhooks::url));
                let deleted: Option<(String, String)> = deleted.get_result(conn).await.optional()?;
                let Some((name, url)) = deleted else { return Ok(false) };
                diesel::sql_query(END_RECOVERIES).bind::<SqlUuid, _>(id.as_uuid()).execute(conn).await?;
                begin_cancellation(conn, id.as_uuid(), None).await?;
                add_history(conn, actor, id, Action::Deleted, json!({"name": name, "url": url})).await?;
                add_notice(conn, actor, id, NoticeType::Deleted, &[]).await?;
                Ok(true)
            })
            .await
        })
        .await
    }
}

impl WebhookChange {
    fn row(&self, before: &Before) -> ChangeRow<'_> {
        ChangeRow {
            name: self.name.as_deref(),
            url: self.url.as_deref(),
            events: self.other_events(before),
            is_active: self.is_active,
        }
    }

    /// The event types, unless they are the same in another order.
    fn other_events(&self, before: &Before) -> Option<Vec<&'static str>> {
        let events = names(self.events.as_ref()?);
        let before: BTreeSet<_> = before.events.iter().map(String::as_str).collect();
        (events.iter().copied().collect::<BTreeSet<_>>() != before).then_some(events)
    }

    /// The members that really change, each with its values before and after.
    fn changed(&self, before: &Before) -> Vec<(&'static str, Value)> {
        let events = self.other_events(before).map(|events| json!(events));
        let after = [
            ("name", json!(before.name), self.name.as_ref().map(|name| json!(name))),
            ("url", json!(before.url), self.url.as_ref().map(|url| json!(url))),
            ("events", json!(before.events), events),
            ("is_active", json!(before.is_active), self.is_active.map(|is_active| json!(is_active))),
        ];
        let changed = after.into_iter().filter_map(|(name, from, to)| {
            let to = to.filter(|to| *to != from)?;
            Some((name, json!({"from": from, "to": to})))
        });
        changed.collect()
    }
}

/// Adds what has changed to the history, and the notices of it.
async fn tell(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    id: WebhookId,
    changed: Vec<(&'static str, Value)>,
    before: &Before,
) -> QueryResult<()> {
    let mut members: Vec<_> = changed.iter().map(|(name, _)| *name).collect();
    let details = changed.into_iter().map(|(name, change)| (name.to_owned(), change)).collect();
    add_history(conn, actor, id, Action::Changed, Value::Object(details)).await?;
    if members.pop_if(|last| *last == "is_active").is_some() {
        let activity = if before.is_active { NoticeType::Paused } else { NoticeType::Activated };
        add_notice(conn, actor, id, activity, &[]).await?;
    }
    match members.is_empty() {
        true => Ok(()),
        false => add_notice(conn, actor, id, NoticeType::Changed, &members).await,
    }
}

#[cfg(test)]
mod tests {
    use domain::EventType::{QuoteAccepted, QuoteClosed, ReturnNoteCreated};

    use super::*;

    #[test]
    fn event_types_in_another_order_are_no_change() {
        let before = Before {
            name: "A".to_owned(),
            url: "https://a.example/".to_owned(),
            events: names(&[QuoteClosed, QuoteAccepted]).into_iter().map(str::to_owned).collect(),
            is_active: true,
        };
        for (events, is_changed) in [
            (vec![QuoteClosed, QuoteAccepted], false),
            (vec![QuoteAccepted, QuoteClosed], false),
            (vec![QuoteClosed], true),
            (vec![QuoteClosed, ReturnNoteCreated], true),
            (vec![QuoteClosed, QuoteAccepted, ReturnNoteCreated], true),
        ] {
            let change = WebhookChange { events: Some(events.clone()), ..WebhookChange::default() };
            let changed: Vec<_> = change.changed(&before).into_iter().map(|(name, _)| name).collect();
            assert_eq!(changed, if is_changed { vec!["events"] } else { vec![] }, "{events:?}");
            assert_eq!(change.row(&before).events.is_some(), is_changed, "{events:?}");
        }
    }
}
