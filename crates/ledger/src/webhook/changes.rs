//! Changes and deletions by administrators.

use diesel::{prelude::*, sql_types::Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{NoticeType, WebhookId};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::{
    connect::pool::Ledger,
    error::LedgerError,
    history::{Action, Actor, add_history},
    notices::add_notice,
    outbox::held_jobs::release_all,
    statement::sql,
    tables::webhooks,
    webhook::{
        Webhook,
        cancellation::{STOP_RECOVERIES, begin_cancellation},
        headers::{NewHeaders, WebhookHeaders},
        of,
        settings::WebhookSettings,
        shown,
    },
};

/// The time of a change. Transactions that begin in one order may change a webhook in another.
const LATER: &str = "greatest(now(), updated_at + interval '1 microsecond')";

impl Ledger {
    /// Changes one of the tenant's webhooks by `change`, which gets settings and headers as they are and when they were last
    /// changed, returns other headers if these change, and refuses with an `E`. When the webhook becomes active,
    /// [`Ledger::jobs_release`] releases its held jobs. Returns `None` if there is no such webhook.
    pub async fn webhook_change<E: Send>(
        &self,
        actor: &Actor,
        id: WebhookId,
        change: impl FnOnce(OffsetDateTime, &mut WebhookSettings, &WebhookHeaders) -> Result<Option<NewHeaders>, E> + Send,
    ) -> Result<Result<Option<Webhook>, E>, LedgerError> {
        self.transaction("webhook_change", async |conn| {
            let one = webhooks::table.filter(of(actor.tenant).and(webhooks::id.eq(id)));
            let before = one.select((webhooks::updated_at, WebhookSettings::as_select(), WebhookHeaders::as_select()));
            let before = before.for_no_key_update().first(conn).await.optional()?;
            let Some((updated_at, before, headers)): Option<(OffsetDateTime, WebhookSettings, WebhookHeaders)> = before
            else {
                return Ok(Ok(None));
            };
            let mut after = before.clone();
            let new_headers = match change(updated_at, &mut after, &headers) {
                Ok(new_headers) => new_headers,
                Err(refused) => return Ok(Err(refused)),
            };
            let mut changes = after.changes(&before);
            if let Some(new_headers) = &new_headers {
                changes.insert("headers".to_owned(), new_headers.details(&headers));
            }
            if !changes.is_empty() {
                let is_paused = before.is_active && !after.is_active;
                let paused_at = is_paused.then(|| webhooks::paused_at.eq(diesel::dsl::now));
                let headers = new_headers.map(|new| new.headers);
                let updated_at = webhooks::updated_at.eq(diesel::dsl::sql::<Timestamptz>(LATER));
                diesel::update(one).set((&after, headers, updated_at, paused_at)).execute(conn).await?;
                notify(conn, actor, id, changes, after.is_active).await?;
            }
            if after.is_active && !before.is_active {
                release_all(conn, id.as_uuid()).await?;
            }
            shown(conn, actor.tenant, id).await.map(Ok)
        })
        .await
    }

    /// Deletes one of the tenant's webhooks, unless `check`, which gets the time of its last change, refuses with an `E`. It
    /// gets nothing more. Its waiting deliveries count as cancelled, and [`Ledger::cancellation_step`] marks them so. Its
    /// history stays. Returns `false` when there is no such webhook.
    pub async fn webhook_delete<E: Send>(
        &self,
        actor: &Actor,
        id: WebhookId,
        check: impl FnOnce(OffsetDateTime) -> Result<(), E> + Send,
    ) -> Result<Result<bool, E>, LedgerError> {
        self.transaction("webhook_delete", async |conn| {
            let one = webhooks::table.filter(of(actor.tenant).and(webhooks::id.eq(id.as_uuid())));
            let found = one.select((webhooks::updated_at, webhooks::name, webhooks::url)).for_no_key_update();
            let found: Option<(OffsetDateTime, String, String)> = found.first(conn).await.optional()?;
            let Some((updated_at, name, url)) = found else { return Ok(Ok(false)) };
            if let Err(refused) = check(updated_at) {
                return Ok(Err(refused));
            }
            let gone = (webhooks::deleted_at.eq(diesel::dsl::now), webhooks::is_active.eq(false));
            diesel::update(one).set(gone).execute(conn).await?;
            sql(STOP_RECOVERIES).bind(id.as_uuid()).execute(conn).await?;
            begin_cancellation(conn, id.as_uuid(), None).await?;
            add_history(conn, actor, id, Action::Deleted, json!({"name": name, "url": url})).await?;
            add_notice(conn, actor, id, NoticeType::Deleted, &[]).await?;
            Ok(Ok(true))
        })
        .await
    }
}

/// Adds what has changed to the history, and the notices of it.
async fn notify(
    conn: &mut AsyncPgConnection,
    actor: &Actor,
    id: WebhookId,
    changes: Map<String, Value>,
    is_active: bool,
) -> QueryResult<()> {
    let mut members: Vec<_> = changes.keys().map(String::as_str).collect();
    let count = members.len();
    members.retain(|name| *name != "is_active");
    if members.len() < count {
        let activity = if is_active { NoticeType::Activated } else { NoticeType::Paused };
        add_notice(conn, actor, id, activity, &[]).await?;
    }
    if !members.is_empty() {
        add_notice(conn, actor, id, NoticeType::Changed, &members).await?;
    }
    add_history(conn, actor, id, Action::Changed, Value::Object(changes)).await
}
