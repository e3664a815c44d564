//! `webhookctl tenant erase`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{bail, ensure};
use domain::TenantId;
use ledger::{Erased, Erasure, Ledger, SETTLE_TIME, TenantCondition};
use tokio::time::sleep;

use crate::{
    confirm::Confirm,
    output, server_error,
    steps::{STEP_PAUSE, Steps},
};

/// The time after the last retry within which the broker has delivered every job, even one that waited behind others.
const MAX_LATENESS: Duration = Duration::from_secs(60 * 60);

/// When an erasure may begin.
pub(super) enum Begin {
    /// Once the broker holds no job of the tenant any more, given the time to the last retry.
    Drained(Duration),
    /// Once no ingest stores a delivery any more. Jobs that the broker still holds are parked.
    Now,
}

/// Erases what the ledger holds of a stopped tenant.
pub(super) async fn run(ledger: &Ledger, tenant: TenantId, begin: Begin, confirm: Confirm) -> anyhow::Result<()> {
    let condition = server_error::database(ledger.tenant_condition(tenant).await)?;
    require_stopped(tenant, condition)?;
    begin.require(ledger, condition).await?;
    let erasure = server_error::database(ledger.erasure_begin(tenant).await)?;
    let (webhooks, deliveries) = (erasure.webhooks().count(), deliveries(ledger, &erasure).await?);
    output::line(format_args!(
        "of tenant {tenant} are to be erased: {webhooks} webhook(s) and {deliveries} deliveries, with all that belongs to them, \
         its notices and its sessions"
    ))?;
    if !confirm.go_on()? {
        return Ok(());
    }
    let mut gone = Gone::new();
    let done = erase(ledger, erasure, &mut gone).await;
    output::line(format_args!("erased: {}", listed(&gone)))?;
    done?;
    output::line(
        "not in the ledger, and not erased: messages on the broker (rejected events, unread notices), logs and backups",
    )
}

impl Begin {
    /// Fails if it is too early, and says when to come back.
    async fn require(&self, ledger: &Ledger, condition: TenantCondition) -> anyhow::Result<()> {
        let after = match self {
            Self::Drained(last_retry) => *last_retry + MAX_LATENESS,
            Self::Now => SETTLE_TIME,
        };
        let last_deleted = condition.last_deleted.map(|ago| Duration::try_from_secs_f64(ago).unwrap_or_default());
        let left = after.saturating_sub(last_deleted.unwrap_or(Duration::MAX));
        let left = humantime::format_duration(Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0)));
        let is_early = last_deleted.is_some_and(|ago| ago < after);
        if matches!(self, Self::Now) {
            ensure!(
                !is_early,
                "an event-ingest may still store deliveries to the deleted webhooks: run it again in {left}"
            );
            return Ok(());
        }
        ensure!(
            !is_early,
            "the broker may hold jobs of the tenant: run it again in {left}. With --now it begins immediately, and the jobs are \
             parked on the queue of dead jobs when they come"
        );
        let brakes = server_error::database(ledger.brakes().await)?;
        ensure!(
            brakes.is_empty(),
            "dispatchers are braked (see `webhookctl brake`), so the broker may hold jobs of the tenant: run it again once \
             they have worked for a while. With --now it begins immediately, and the jobs are parked on the queue of dead jobs \
             when they come"
        );
        Ok(())
    }
}

/// What keeps an erasure from its begin, with what to do about it.
fn require_stopped(tenant: TenantId, condition: TenantCondition) -> anyhow::Result<()> {
    let TenantCondition { registered, keys, cancelling, unpublished, .. } = condition;
    ensure!(
        registered + keys == 0,
        "the tenant has {registered} webhook(s) that are not deleted and {keys} key(s): run `webhookctl tenant stop {tenant}` \
         first"
    );
    ensure!(
        cancelling == 0,
        "deliveries of {cancelling} deleted webhook(s) are still waiting: `webhookctl tenant stop {tenant}` cancels them"
    );
    ensure!(
        unpublished == 0,
        "{unpublished} notice(s) of the tenant are not published yet: run it again once an api-service has \
         published them"
    );
    Ok(())
}

async fn deliveries(ledger: &Ledger, erasure: &Erasure) -> anyhow::Result<u64> {
    let mut deliveries = 0;
    for webhook in erasure.webhooks() {
        let mut last = None;
        loop {
            let counted = server_error::database(ledger.deliveries_count(webhook, last).await)?;
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
                steps.show_progress(format_args!("erased so far: {}", listed(gone)))?;
                sleep(STEP_PAUSE).await;
            }
            Ok(Erased::Registered) => {
                bail!("the tenant has registered a webhook meanwhile: stop the tenant again, and erase the rest later")
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
