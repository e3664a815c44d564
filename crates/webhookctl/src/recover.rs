//! `webhookctl recover`: dropped deliveries of any tenant are sent again.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
    time::Duration,
};

use anyhow::{Context, ensure};
use broker::{Broker, Outgoing, Publisher};
use domain::{Job, OutcomeClass, TenantId, WebhookId};
use ledger::{Ledger, LedgerError, MassRecovery, MassStep, OutboxBatch};
use service_kit::{Settings, shutdown};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    arguments::{Misuse, moment},
    away,
    confirm::Confirm,
    connect, output,
    steps::{BREATH, Steps},
};

/// Steps per second, roughly (the rate is exact), and the maximum of deliveries in a step.
const STEPS_PER_SECOND: u16 = 4;
const PER_STEP: u16 = 1_000;
/// Tenants that are listed.
const LISTED: usize = 20;

/// Sends dropped deliveries of all tenants again, after an outage of our own: with the same id and body, in a fresh run of
/// the schedule, at a measured pace. It may be stopped and run again.
///
/// Exit codes: 0 done, 1 something is left or the command failed, 2 arguments or settings that cannot be used.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Deliveries whose event fired at this time or later, such as 2026-11-27T03:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: OffsetDateTime,
    /// Deliveries whose event fired before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: OffsetDateTime,
    /// Deliveries whose last attempt had one of these outcomes, comma separated [default: all].
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = failure)]
    outcome: Vec<OutcomeClass>,
    /// Deliveries of this tenant [default: of all].
    #[arg(long, value_name = "UUID")]
    tenant: Option<TenantId>,
    /// Deliveries a second, of all webhooks together [default: `api.recover_per_second`].
    #[arg(long, value_name = "N")]
    per_second: Option<NonZeroU16>,
    /// The user in the webhooks' history.
    #[arg(long, default_value = "operator")]
    user: String,
    #[command(flatten)]
    confirm: Confirm,
}

/// The outcome class of a failed attempt.
fn failure(text: &str) -> Result<OutcomeClass, String> {
    let failures = || OutcomeClass::ALL.into_iter().filter(|class| !class.is_success());
    let named = failures().find(|class| class.as_str() == text);
    named.ok_or_else(|| {
        format!("expected one of {}", failures().map(OutcomeClass::as_str).collect::<Vec<_>>().join(", "))
    })
}

/// Counts the deliveries and, once the operator has confirmed, sends them again.
pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { from, to, outcome: outcomes, tenant, per_second, user, confirm } = arguments;
    ensure!(from < to, Misuse("--from: is not before --to".to_owned()));
    let stop = shutdown::on_signals().context("signals cannot be handled")?;
    let (ledger, broker) = (connect::ledger(settings)?, connect::broker(settings)?);
    connect::require_schema(&ledger).await?;
    let run = Run {
        wanted: MassRecovery { from, to, outcomes, tenant },
        bodies: settings.retention.kept().bodies,
        per_second: per_second.map_or(settings.api.recover_per_second, NonZeroU16::get),
        user,
        ledger,
        stop,
    };
    let found = run.count().await?;
    let total = found.values().sum();
    describe(&found, total, run.per_second)?;
    if total == 0 || !confirm.go_on()? {
        return Ok(());
    }
    // The publisher would try for ten seconds and then not say why.
    away::broker(broker.depth(&broker.names().bulk()).await)?;
    run.send(&broker, total).await
}

struct Run {
    wanted: MassRecovery,
    bodies: Duration,
    per_second: u16,
    user: String,
    ledger: Ledger,
    stop: CancellationToken,
}

impl Run {
    /// Counts the deliveries by webhook, chunk after chunk. A chunk that fails, or that takes too long, is counted again.
    async fn count(&self) -> anyhow::Result<BTreeMap<(TenantId, WebhookId), u64>> {
        let (mut found, mut after) = (BTreeMap::new(), None);
        let mut steps = Steps::new(
            "the deliveries are not counted, and nothing was changed: run the command again, or for a shorter time (--from, \
             --to)",
        );
        loop {
            ensure!(!self.stop.is_cancelled(), "stopped: nothing was changed");
            let step = self.ledger.mass_recovery_count(&self.wanted, after, self.bodies).await;
            let MassStep { deliveries, next, .. } = match step {
                Ok(step) => step,
                Err(error) => {
                    let told = format!("counting is tried again: {error}");
                    match error {
                        LedgerError::Timeout(_) if steps.may_retry().await => {}
                        error => steps.retry(error).await?,
                    }
                    output::error(told);
                    continue;
                }
            };
            for (webhook, count) in deliveries {
                *found.entry(webhook).or_default() += count;
            }
            (after, steps.failed) = (next, 0);
            if after.is_none() {
                return Ok(found);
            }
            sleep(BREATH).await;
        }
    }

    /// Sends until nothing is left or the command is stopped, and says how much it has sent.
    async fn send(&self, broker: &Broker, total: u64) -> anyhow::Result<()> {
        let (mut noted, mut sent) = (BTreeSet::new(), 0);
        let publisher = broker.publisher(CancellationToken::new());
        let most = usize::from((self.per_second / STEPS_PER_SECOND).clamp(1, PER_STEP));
        let (mut after, mut steps) = (None, Steps::new("interrupted: run the command again for the rest"));
        let sending = async {
            loop {
                ensure!(!self.stop.is_cancelled(), "stopped: run the command again for the rest");
                let began = Instant::now();
                let (pace, history) = ((most, self.bodies), (self.user.as_str(), &mut noted));
                let step = self.ledger.mass_recovery_step(&self.wanted, after, pace, history).await;
                let MassStep { deliveries, next, batch } = match step {
                    Ok(step) => step,
                    Err(error) => {
                        steps.retry(error).await?;
                        continue;
                    }
                };
                let count: u64 = deliveries.values().sum();
                sent += count;
                (after, steps.failed) = (next, 0);
                if let Some(batch) = batch.filter(|batch| !batch.is_empty()) {
                    self.publish(broker, &publisher, &batch).await?;
                }
                if after.is_none() {
                    return Ok(());
                }
                steps.tell(format_args!("sent again so far: {sent} of {total}"))?;
                let due = began + Duration::from_secs(1).mul_f64(count as f64 / f64::from(self.per_second));
                let pause = sleep_until(due.max(Instant::now() + BREATH));
                self.stop.run_until_cancelled(pause).await;
            }
        };
        let outcome = sending.await;
        output::line(format_args!("sent again: {sent} of {total} deliveries, of {} webhook(s)", noted.len()))?;
        outcome
    }

    /// Publishes jobs in the bulk lane, so that no new event waits behind them, and deletes those that the broker has
    /// confirmed from the outbox.
    async fn publish(&self, broker: &Broker, publisher: &Publisher, batch: &OutboxBatch) -> anyhow::Result<()> {
        let (messages, jobs): (Vec<Outgoing>, Vec<&[Job]>) =
            broker.names().jobs_in_bulk(batch.jobs(), |job| *job).into_iter().unzip();
        let Err(unconfirmed) = publisher.publish_bulk(&messages).await else {
            return away::database(self.ledger.outbox_delete(batch).await);
        };
        let left = unconfirmed.places.iter().filter_map(|place| jobs.get(*place)).copied().flatten();
        let published = batch.without(left);
        if !published.is_empty() {
            away::database(self.ledger.outbox_delete(&published).await)?;
        }
        let unpublished = batch.jobs().len() - published.jobs().len();
        Err(anyhow::Error::new(unconfirmed).context(format!(
            "the broker has not confirmed {unpublished} job(s), which an api-service publishes; run the command again for the rest"
        )))
    }
}

/// Says what would be sent again, beginning with the tenants that have most deliveries.
fn describe(found: &BTreeMap<(TenantId, WebhookId), u64>, total: u64, per_second: u16) -> anyhow::Result<()> {
    let mut tenants: BTreeMap<TenantId, (u64, usize)> = BTreeMap::new();
    for ((tenant, _), count) in found {
        let (deliveries, webhooks) = tenants.entry(*tenant).or_default();
        (*deliveries, *webhooks) = (*deliveries + count, *webhooks + 1);
    }
    let mut most: Vec<_> = tenants.iter().collect();
    most.sort_by_key(|(tenant, (deliveries, _))| (std::cmp::Reverse(*deliveries), **tenant));
    for (tenant, (deliveries, webhooks)) in most.iter().take(LISTED) {
        output::line(format_args!("tenant {tenant}: {deliveries} deliveries of {webhooks} webhook(s)"))?;
    }
    if most.len() > LISTED {
        output::line(format_args!("and {} tenant(s) with fewer", most.len() - LISTED))?;
    }
    let takes = humantime::format_duration(Duration::from_secs(total.div_ceil(per_second.into())));
    output::line(format_args!(
        "{total} deliveries of {} webhook(s) of {} tenant(s) are to be sent again: {takes} at {per_second} a second",
        found.len(),
        tenants.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outcomes_of_failed_attempts_are_taken() {
        assert_eq!(failure("dns"), Ok(OutcomeClass::Dns));
        assert_eq!(failure("refused_address"), Ok(OutcomeClass::RefusedAddress));
        for bad in ["success", "dropped", ""] {
            let said = failure(bad).unwrap_err();
            assert_eq!(said, "expected one of status, timeout, connect, dns, tls, refused_address, protocol", "{bad}");
        }
    }
}
