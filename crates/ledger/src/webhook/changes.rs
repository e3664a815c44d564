//! Changes and deletions by administrators.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{NoticeType, WebhookId};
use serde_json::{Map, Value, json};

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
        of,
        settings::WebhookSettings,
        shown,
    },
};

impl Ledger {
    /// Changes the settings of one of the tenant's webhooks by `change`, which gets those that it has, and refuses with an
    /// `E`. When it becomes active, [`Ledger::jobs_release`] releases its held jobs. Returns `None` if there is no such webhook.
    pub async fn webhook_change<E: Send>(
        &self,
        actor: &Actor,
        id: WebhookId,
        change: impl FnOnce(&mut WebhookSettings) -> Result<(), E> + Send,
    ) -> Result<Result<Option<Webhook>, E>, LedgerError> {
        self.transaction("webhook_change", async |conn| {
            let one = webhooks::table.filter(of(actor.tenant).and(webhooks::id.eq(id)));
            let before = one.select(WebhookSettings::as_select()).for_no_key_update();
            let Some(before) = before.first(conn).await.optional()? else { return Ok(Ok(None)) };
            let mut after = before.clone();
            if let Err(refused) = change(&mut after) {
                return Ok(Err(refused));
            }
            let changes = after.changes(&before);
            if !changes.is_empty() {
                let is_paused = before.is_active && !after.is_active;
                let paused_at = is_paused.then(|| webhooks::paused_at.eq(diesel::dsl::now));
                let row = (&after, webhooks::updated_at.eq(diesel::dsl::now), paused_at);
                diesel::update(one).set(row).execute(conn).await?;
                notify(conn, actor, id, changes, after.is_active).await?;
            }
            if after.is_active && !before.is_active {
                release_all(conn, id.as_uuid()).await?;
            }
            shown(conn, actor.tenant, id).await.map(Ok)
        })
        .await
    }

    /// Deletes one of the tenant's webhooks. It gets nothing more. Its waiting deliveries count as cancelled, and
    /// [`Ledger::cancellation_step`] marks them so. Its history stays. Returns `false` when there is no such webhook.
    pub async fn webhook_delete(&self, actor: &Actor, id: WebhookId) -> Result<bool, LedgerError> {
        self.transaction("webhook_delete", async |conn| {
            let one = webhooks::table.filter(of(actor.tenant).and(webhooks::id.eq(id.as_uuid())));
            let gone = (webhooks::deleted_at.eq(diesel::dsl::now), webhooks::is_active.eq(false));
            let deleted = diesel::update(one).set(gone).returning((webhooks::name, webhooks::url));
            let deleted: Option<(String, String)> = deleted.get_result(conn).await.optional()?;
            let Some((name, url)) = deleted else { return Ok(false) };
            sql(STOP_RECOVERIES).bind(id.as_uuid()).execute(conn).await?;
            begin_cancellation(conn, id.as_uuid(), None).await?;
            add_history(conn, actor, id, Action::Deleted, json!({"name": name, "url": url})).await?;
            add_notice(conn, actor, id, NoticeType::Deleted, &[]).await?;
            Ok(true)
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
