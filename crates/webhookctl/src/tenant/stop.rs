//! `webhookctl tenant stop`.

use std::{convert::Infallible, time::Duration};

use anyhow::ensure;
use domain::TenantId;
use ledger::{Actor, Backlog, Ledger, Webhook};
use tokio::time::sleep;

use crate::{
    confirm::Confirm,
    output, server_error,
    steps::{STEP_PAUSE, Steps},
};

/// How often it is looked whether somebody else has taken the last steps.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Revokes a tenant's keys, deletes its webhooks, and has all their waiting deliveries cancelled.
pub(super) async fn run(ledger: &Ledger, tenant: TenantId, user: String, confirm: Confirm) -> anyhow::Result<()> {
    let before = server_error::database(ledger.tenant_condition(tenant).await)?;
    let known = before.registered + before.deleted + before.keys;
    ensure!(known > 0, "the ledger knows no webhook and no key of tenant {tenant}");
    if before.keys > 0 {
        output::line(format_args!("{} key(s) of tenant {tenant} are to be revoked", before.keys))?;
    }
    if before.registered > 0 {
        for webhook in server_error::database(ledger.webhooks_all(tenant).await)? {
            output::line(described(&webhook))?;
        }
        output::line(format_args!("{} webhook(s) of tenant {tenant} are to be deleted", before.registered))?;
    }
    if before.cancelling > 0 {
        output::line(format_args!(
            "waiting deliveries of {} webhook(s) of tenant {tenant} are being cancelled, and will all be cancelled",
            before.cancelling
        ))?;
    }
    if before.keys + before.registered + before.cancelling > 0 && !confirm.go_on()? {
        return Ok(());
    }
    let actor = Actor { tenant, user };
    // First, so that no program registers a webhook meanwhile.
    let mut revoked = server_error::database(ledger.keys_revoke(&actor).await)?;
    let mut deleted = 0;
    // Until there is none: administrators may register others meanwhile.
    loop {
        let webhooks = server_error::database(ledger.webhooks_all(tenant).await)?;
        if webhooks.is_empty() {
            break;
        }
        for webhook in webhooks {
            let deleting = ledger.webhook_delete(&actor, webhook.id, |_| Ok::<_, Infallible>(()));
            let Ok(is_deleted) = server_error::database(deleting.await)?;
            deleted += u32::from(is_deleted);
        }
    }
    cancel(ledger, tenant).await?;
    revoked += server_error::database(ledger.keys_revoke(&actor).await)?;
    let earlier = if before.deleted > 0 { format!(", {} had been before", before.deleted) } else { String::new() };
    output::line(format_args!(
        "tenant {tenant} is stopped: {deleted} webhook(s) are deleted{earlier}, {revoked} key(s) are revoked, and no delivery \
         is waiting"
    ))
}

fn described(Webhook { id, settings, backlog, .. }: &Webhook) -> String {
    let more = if backlog.waiting == Backlog::MAX_COUNT { " or more" } else { "" };
    format!("webhook {id} ({}): {}{more} retries and held deliveries wait", settings.name, backlog.waiting)
}

/// Cancels what waits for the tenant's deleted webhooks, together with any api-service that runs.
async fn cancel(ledger: &Ledger, tenant: TenantId) -> anyhow::Result<()> {
    let (mut steps, mut cancelled) = (Steps::new("interrupted: run the command again to cancel the rest"), 0);
    loop {
        let is_idle = match ledger.cancellation_step(Some(tenant), STEP_PAUSE).await {
            Ok(Some(step)) => {
                cancelled += step.deliveries;
                steps.failed = 0;
                false
            }
            Ok(None) => true,
            // A step that gives up a lock is due again by itself, so its error is not the end.
            Err(error) => {
                steps.retry(error).await?;
                false
            }
        };
        if is_idle && server_error::database(ledger.tenant_condition(tenant).await)?.cancelling == 0 {
            return Ok(());
        }
        let failed = match steps.failed {
            0 => String::new(),
            failed => format!(", and {failed} step(s) failed in succession"),
        };
        steps.show_progress(format_args!("cancelled so far: {cancelled} deliveries{failed}"))?;
        sleep(if is_idle { POLL_INTERVAL } else { STEP_PAUSE }).await;
    }
}
