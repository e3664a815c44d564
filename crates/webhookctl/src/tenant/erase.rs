//! `webhookctl tenant erase`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail, ensure};
use domain::TenantId;
use ledger::{Erased, Erasure, Ledger, TenantCondition};
use tokio::time::{Instant, sleep};

use super::{BREATH, TELL, TRIES};
use crate::{away, confirm::Confirm, output};

/// The pause before a step is tried again that does not get its locks, or waits for notices.
const PATIENCE: Duration = Duration::from_millis(500);

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
    let mut gone = Gone::default();
    let done = erase(ledger, erasure, &mut gone).await;
    output::line(format_args!("erased: {gone}"))?;
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
    let (mut told, mut tries) = (Instant::now(), 0);
    loop {
        match ledger.erasure_step(&mut erasure).await {
            Ok(Erased::All) => return Ok(()),
            Ok(Erased::Rows(rows)) => gone.add(rows),
            Ok(Erased::Unpublished) => {
                tries += 1;
                ensure!(
                    tries < TRIES,
                    "notices about what was changed meanwhile are not published yet: run it again once an api-service has \
                     published them"
                );
                sleep(PATIENCE).await;
                continue;
            }
            Ok(Erased::Registered) => {
                bail!("the tenant has registered a webhook meanwhile: stop the tenant again, then erase the rest")
            }
            Err(error) => {
                tries += 1;
                if error.is_unavailable() || tries == TRIES {
                    return away::database(Err(error)).context("interrupted: run the command again to erase the rest");
                }
                sleep(PATIENCE).await;
                continue;
            }
        }
        tries = 0;
        if told.elapsed() >= TELL {
            output::line(format_args!("erased so far: {gone}"))?;
            told = Instant::now();
        }
        sleep(BREATH).await;
    }
}

/// How many rows of each table are gone.
#[derive(Default)]
struct Gone(BTreeMap<&'static str, usize>);

impl Gone {
    fn add(&mut self, rows: Vec<(&'static str, usize)>) {
        for (table, count) in rows.into_iter().filter(|(_, count)| *count > 0) {
            *self.0.entry(table).or_default() += count;
        }
    }
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        let tables: Vec<_> = self.0.iter().map(|(table, count)| format!("{count} {table}")).collect();
        f.write_str(&tables.join(", "))
    }
}
