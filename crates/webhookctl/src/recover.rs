//! `webhookctl recover`: dropped deliveries of any tenant are sent again.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use anyhow::ensure;
use domain::{EventType, OutcomeClass, TenantId, Timestamp};
use ledger::{Actor, Ledger, NewRecovery, Recover, Recoverable, RecoverableCount, RecoverableWebhook};
use service_kit::Settings;

use crate::{arguments::Misuse, confirm::Confirm, connect, output, server_error, steps::Steps};

/// Tenants that are listed.
const MAX_LISTED_TENANTS: usize = 20;

/// Sends dropped deliveries of all tenants again, after an outage of our own: with the same id and body, in a fresh run of
/// the schedule. Begins a recovery of each webhook, as an administrator can, and skips webhooks with a running one.
///
/// Exit codes: 0 done, 1 a webhook was skipped or the command failed, 2 arguments or settings that cannot be used.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Deliveries whose event fired at this time or later, such as 2026-11-27T03:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Timestamp,
    /// Deliveries whose event fired before this time.
    #[arg(long, value_name = "TIME")]
    to: Timestamp,
    /// Deliveries whose last attempt had one of these outcomes, comma separated [default: all].
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = failure)]
    outcome: Vec<OutcomeClass>,
    /// Deliveries of events of these types, comma separated [default: all].
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    event_type: Vec<EventType>,
    /// Deliveries of this tenant [default: of all].
    #[arg(long, value_name = "UUID")]
    tenant: Option<TenantId>,
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

/// Counts the deliveries and, once the operator has confirmed, begins a recovery of each webhook.
pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { from, to, outcome: outcomes, event_type: event_types, tenant, user, confirm } = arguments;
    ensure!(from < to, Misuse("--from: is not before --to".to_owned()));
    let ledger = connect::ledger(settings)?;
    connect::require_schema(&ledger).await?;
    let run = Run {
        wanted: NewRecovery {
            since: from.as_datetime(),
            until: Some(to.as_datetime()),
            states: vec![Recoverable::Dropped],
            outcomes,
            event_types,
        },
        bodies: settings.retention.kept().bodies,
        user,
        ledger,
    };
    let found = run.count(tenant).await?;
    describe(&found, settings.api.recover_per_second)?;
    let (running, free): (Vec<_>, Vec<_>) =
        found.into_iter().map(|(webhook, _)| webhook).partition(|webhook| webhook.is_recovering);
    running.iter().try_for_each(say_skipped)?;
    if running.len() + free.len() == 0 || !confirm.go_on()? {
        return Ok(());
    }
    let skipped = running.len() + run.begin(&free).await?;
    ensure!(
        skipped == 0,
        "{skipped} webhook(s) were skipped, of which a recovery is running: run the command again once it has ended"
    );
    Ok(())
}

type RecoverableWebhooks = Vec<(RecoverableWebhook, RecoverableCount)>;

struct Run {
    wanted: NewRecovery,
    /// How long bodies are kept.
    bodies: Duration,
    user: String,
    ledger: Ledger,
}

impl Run {
    /// Counts the deliveries of each webhook that has any. A count that fails is made again.
    async fn count(&self, tenant: Option<TenantId>) -> anyhow::Result<RecoverableWebhooks> {
        let mut found = Vec::new();
        let mut steps = Steps::new("the deliveries are not counted, and nothing was changed: run the command again");
        for webhook in server_error::database(self.ledger.recoverable_webhooks(tenant).await)? {
            let RecoverableWebhook { id, tenant, .. } = webhook;
            let count = async || self.ledger.recoverable_count(tenant, id, &self.wanted, self.bodies).await;
            let counted = steps.take("counting", count).await?;
            // Of certain outcomes there may be some beyond those that were looked at.
            let counted = counted.filter(|counted| counted.total() > 0 || !counted.is_exact);
            found.extend(counted.map(|counted| (webhook, counted)));
        }
        Ok(found)
    }

    /// Begins the recoveries. Returns how many webhooks were skipped, as one has begun meanwhile.
    async fn begin(&self, webhooks: &[RecoverableWebhook]) -> anyhow::Result<usize> {
        let (mut begun, mut skipped) = (0, 0);
        let mut steps = Steps::new("interrupted: run the command again for the other webhooks");
        for webhook in webhooks {
            let actor = Actor { tenant: webhook.tenant, user: self.user.clone() };
            let create = async || self.ledger.recovery_create(&actor, webhook.id, &self.wanted, self.bodies).await;
            match steps.take("a recovery", create).await? {
                Ok(Recover::Begun(_)) => begun += 1,
                Ok(Recover::Running(_)) => {
                    say_skipped(webhook)?;
                    skipped += 1;
                }
                // There is nothing to send any more: since the count it was deleted, cancelled, or its bodies have expired.
                Err(_) => {}
            }
            steps.show_progress(format_args!("recoveries begun so far: {begun} of {}", webhooks.len()))?;
        }
        output::line(format_args!(
            "recoveries begun: {begun}. The api-services send the deliveries; until then `webhookctl doctor` counts the \
             recoveries as tasks"
        ))?;
        Ok(skipped)
    }
}

fn say_skipped(RecoverableWebhook { id, tenant, .. }: &RecoverableWebhook) -> anyhow::Result<()> {
    output::line(format_args!("skipped: webhook {id} of tenant {tenant}, of which a recovery is running"))
}

/// Says what would be sent again, beginning with the tenants that have most deliveries.
fn describe(found: &RecoverableWebhooks, per_second: u16) -> anyhow::Result<()> {
    let mut tenants: BTreeMap<TenantId, (i64, usize)> = BTreeMap::new();
    for (webhook, counted) in found {
        let (deliveries, webhooks) = tenants.entry(webhook.tenant).or_default();
        (*deliveries, *webhooks) = (*deliveries + counted.total(), *webhooks + 1);
    }
    let mut most: Vec<_> = tenants.iter().collect();
    most.sort_by_key(|(tenant, (deliveries, _))| (Reverse(*deliveries), **tenant));
    for (tenant, (deliveries, webhooks)) in most.iter().take(MAX_LISTED_TENANTS) {
        output::line(format_args!("tenant {tenant}: {deliveries} deliveries of {webhooks} webhook(s)"))?;
    }
    if most.len() > MAX_LISTED_TENANTS {
        output::line(format_args!("and {} tenant(s) with fewer", most.len() - MAX_LISTED_TENANTS))?;
    }
    let counts = || found.iter().map(|(_, counted)| counted.total());
    let longest = u64::try_from(counts().max().unwrap_or_default()).unwrap_or_default();
    let takes = humantime::format_duration(Duration::from_secs(longest.div_ceil(per_second.into())));
    let at_least = if found.iter().all(|(_, counted)| counted.is_exact) { "" } else { "at least " };
    output::line(format_args!(
        "{at_least}{} deliveries of {} webhook(s) of {} tenant(s) are to be sent again: at {per_second} a second of each \
         webhook, within {takes} at best",
        counts().sum::<i64>(),
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
