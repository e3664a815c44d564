//! Changes and deletions by administrators.

use diesel::{prelude::*, sql_types::Uuid as SqlUuid};
use diesel_async::{AsyncConnection, RunQueryDsl};
use domain::{EventType, TenantId, WebhookId};

use super::{Webhook, of, shown};
#[cfg(doc)]
use crate::Task;
use crate::{
    admin::tasks::{begin_activation, begin_cancellation},
    error::LedgerError,
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

/// Ends the running recovery of webhook `$1`, if there is one. A step under way is waited for.
pub(crate) const END_RECOVERIES: &str =
    "UPDATE recoveries SET finished_at = now() WHERE webhook_id = $1 AND finished_at IS NULL";

impl Ledger {
    /// Changes one of the tenant's webhooks. When it becomes active, [`Task::Activate`] follows for its held jobs.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn webhook_change(
        &self,
        tenant: TenantId,
        id: WebhookId,
        change: &WebhookChange,
    ) -> Result<Option<Webhook>, LedgerError> {
        if *change == WebhookChange::default() {
            return self.webhook_find(tenant, id).await;
        }
        let row = self
            .run(async |conn| {
                conn.transaction(async |conn| {
                    let one = webhooks::table.filter(of(tenant).and(webhooks::id.eq(id.as_uuid())));
                    let update = diesel::update(one).set((change.row(), webhooks::updated_at.eq(diesel::dsl::now)));
                    if update.execute(conn).await? == 0 {
                        return Ok(None);
                    }
                    if change.is_active == Some(true) {
                        begin_activation(conn, id.as_uuid()).await?;
                    }
                    shown(conn, tenant, id).await
                })
                .await
            })
            .await?;
        row.map(|(row, health)| row.read(health)).transpose()
    }

    /// Deletes one of the tenant's webhooks. It gets nothing more. Its waiting deliveries count as cancelled, and
    /// [`Task::Cancel`] marks them so. Its history stays. Returns `false` when there is no such webhook.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn webhook_delete(&self, tenant: TenantId, id: WebhookId) -> Result<bool, LedgerError> {
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let one = webhooks::table.filter(of(tenant).and(webhooks::id.eq(id.as_uuid())));
                let gone = (webhooks::deleted_at.eq(diesel::dsl::now), webhooks::is_active.eq(false));
                if diesel::update(one).set(gone).execute(conn).await? == 0 {
                    return Ok(false);
                }
                diesel::sql_query(END_RECOVERIES).bind::<SqlUuid, _>(id.as_uuid()).execute(conn).await?;
                begin_cancellation(conn, id.as_uuid()).await?;
                Ok(true)
            })
            .await
        })
        .await
    }
}

impl WebhookChange {
    fn row(&self) -> ChangeRow<'_> {
        let names = |events: &Vec<EventType>| events.iter().map(|event| event.as_str()).collect();
        ChangeRow {
            name: self.name.as_deref(),
            url: self.url.as_deref(),
            events: self.events.as_ref().map(names),
            is_active: self.is_active,
        }
    }
}
