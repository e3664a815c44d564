//! `webhookctl tenant erase`.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use domain::TenantId;
use ledger::{Erased, Erasure, Ledger, TenantCondition};
use tokio::time::sleep;

use crate::{
    away,
    confirm::Confirm,
    output,
    steps::{BREATH, Steps},
};

/// Erases what the ledger holds of a stopped tenant.
pub(super) async fn run(ledger: &Ledger, tenant: TenantId, confirm: Confirm) -> anyhow::Result<()> {
    let condition = away::database(ledger.tenant_condition(tenant).await)?;
    require_stopped(tenant, condition)?;
    let erasure = away::database(ledger.erasure_begin(tenant).await)?;
    let (webhooks, deliveries) = (erasure.webhooks().count(), deliveries(ledger, &erasure).await?);
    output::line(format_args!(
        "of tenant {tenant} are to be erased: {webhooks} webhook(s) and {deliveries} deliveries, with all that belongs to them, \
         its notices and its sessions"
    ))?;
    if !confirm.go_on()? {
        return Ok(());
    }
    settle(ledger, tenant, condition).await?;
    // Only now is every delivery there, and every webhook that was registered and deleted meanwhile.
    let erasure = away::database(ledger.erasure_begin(tenant).await)?;
    let mut gone = Gone::new();
    let done = erase(ledger, erasure, &mut gone).await;
    output::line(format_args!("erased: {}", listed(&gone)))?;
    done?;
    let left = away::database(ledger.tenant_condition(tenant).await)?.deleted;
    ensure!(
        left == 0,
        "{left} webhook(s) are left, which were deleted meanwhile or got deliveries meanwhile: run the command again"
    );
    output::line(
        "not in the ledger, and not erased: messages on the broker (rejected events, unread notices), logs and backups",
    )
}

/// Waits until no ingest can store a delivery any more to a webhook that it read before its deletion.
async fn settle(ledger: &Ledger, tenant: TenantId, mut condition: TenantCondition) -> anyhow::Result<()> {
    // Again, if administrators have registered and deleted another meanwhile.
    while !condition.settles_in.is_zero() {
        let seconds = condition.settles_in.as_secs() + 1;
        output::line(format_args!(
            "waiting for {seconds} s, so that each event-ingest finishes what it began before the deletion"
        ))?;
        sleep(condition.settles_in).await;
        condition = away::database(ledger.tenant_condition(tenant).await)?;
        require_stopped(tenant, condition)?;
    }
    Ok(())
}

/// What keeps an erasure from its begin, with what to do about it.
fn require_stopped(tenant: TenantId, condition: TenantCondition) -> anyhow::Result<()> {
    let TenantCondition { registered, cancelling, unpublished, .. } = condition;
    ensure!(
        registered == 0,
        "the tenant has {registered} webhook(s) that are not deleted: run `webhookctl tenant stop {tenant}` first"
    );
    ensure!(
        cancelling == 0,
        "deliveries of {cancelling} deleted webhook(s) are still waiting: `webhookctl tenant stop {tenant}` cancels them"
    );
    ensure!(
        unpublished == 0,
        "{unpublished} notice(s) about the tenant's webhooks are not published yet: run it again once an api-service has \
         published them"
    );
    Ok(())
}

async fn deliveries(ledger: &Ledger, erasure: &Erasure) -> anyhow::Result<u64> {
    let mut deliveries = 0;
    for webhook in erasure.webhooks() {
        let mut last = None;
        loop {
            let counted = away::database(ledger.deliveries_count(webhook, last).await)?;
            deliveries += counted.deliveries;
            last = counted.last;
            if last.is_none() {
                break;
            }
        }
    }
    Ok(deliveries)
}

/// Takes all steps. Counts in `gone`, also when it fails in the middle.
async fn erase(ledger: &Ledger, mut erasure: Erasure, gone: &mut Gone) -> anyhow::Result<()> {
    let mut steps = Steps::new("interrupted: run the command again to erase the rest");
    loop {
        match ledger.erasure_step(&mut erasure).await {
            Ok(Erased::All) => return Ok(()),
            Ok(Erased::Rows(rows)) => {
                for (table, count) in rows.into_iter().filter(|(_, count)| *count > 0) {
                    *gone.entry(table).or_default() += count;
                }
                steps.failed = 0;
                steps.tell(format_args!("erased so far: {}", listed(gone)))?;
                sleep(BREATH).await;
            }
            Ok(Erased::Unpublished) => ensure!(
                steps.may_retry().await,
                "notices about what was changed meanwhile are not published yet: run it again once an api-service has \
                 published them"
            ),
            Ok(Erased::Registered) => {
                bail!("the tenant has registered a webhook meanwhile: stop the tenant again, then erase the rest")
            }
            Err(error) => steps.retry(error).await?,
        }
    }
}

/// The number of rows of each table that are gone.
type Gone = BTreeMap<&'static str, usize>;

fn listed(gone: &Gone) -> String {
    let tables: Vec<_> = gone.iter().map(|(table, count)| format!("{count} {table}")).collect();
    if tables.is_empty() { "nothing".to_owned() } else { tables.join(", ") }
}
