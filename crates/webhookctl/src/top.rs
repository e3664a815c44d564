//! `webhookctl top`: the webhooks that hold places, are slow, are held and fail.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use domain::{DeliveryId, time_text};
use ledger::{Brake, Top, WebhookAttempts, WebhookFailures, WebhookHeld};
use serde::Serialize;
use serde_json::{Value, json};
use service_kit::Settings;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{brake::described, connect, output, server_error};

/// The time that is looked at.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// Shows the webhooks that took places of dispatchers, were slow and failed in the last five minutes, and those whose jobs are
/// held now. It reads only.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Webhooks of each kind that are shown.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let (ledger, broker) = (connect::ledger(settings)?, connect::broker(settings)?);
    connect::require_schema(&ledger).await?;
    let brakes = server_error::database(ledger.brakes().await)?;
    let top = server_error::database(ledger.top(PERIOD, arguments.limit).await)?;
    let (names, mut ready) = (broker.names(), Vec::new());
    for (lane, queue) in [("main", names.main()), ("bulk", names.bulk()), ("slow", names.slow())] {
        ready.push((lane, server_error::broker(broker.depth_shown(&queue).await)?));
    }
    let seen = Seen::of(brakes, top, ready, arguments.limit);
    if arguments.json { output::line(seen.json()) } else { output::line(seen.screen()) }
}

/// Places that attempts of a webhook took on average.
#[derive(Serialize)]
struct Places {
    webhook_id: Uuid,
    tenant_id: Option<Uuid>,
    places: f64,
    attempts: i64,
}

/// Failed attempts of a webhook.
#[derive(Serialize)]
struct Failing {
    webhook_id: Uuid,
    tenant_id: Option<Uuid>,
    failed: i64,
    failure: Option<String>,
}

/// Everything that is shown.
struct Seen {
    now: OffsetDateTime,
    brakes: Vec<Brake>,
    /// The number of the latest deliveries whose attempts were looked at.
    deliveries: i64,
    /// When the event of the oldest of these fired, if there are older ones.
    cut_at: Option<OffsetDateTime>,
    places: Vec<Places>,
    slow: Vec<Places>,
    failing: Vec<Failing>,
    held: Vec<WebhookHeld>,
    /// Messages that wait for a dispatcher, by lane. `None` where there is no queue.
    ready: Vec<(&'static str, Option<u32>)>,
}

impl Seen {
    fn of(brakes: Vec<Brake>, top: Top, ready: Vec<(&'static str, Option<u32>)>, limit: usize) -> Self {
        let Top { now, attempts, failures, held, deliveries, cut_at } = top;
        let cut_at = cut_at.map(DeliveryId::occurred_at);
        // The time in which attempts were read. All attempts of a webhook together may have taken several times as long.
        let read = cut_at.map_or(f64::INFINITY, |cut_at| (now - cut_at).as_seconds_f64());
        let read = read.clamp(1.0, PERIOD.as_secs_f64());
        let places = |one: &WebhookAttempts, seconds: f64, attempts| {
            let WebhookAttempts { webhook_id, tenant_id, .. } = *one;
            Places { webhook_id, tenant_id, places: seconds / read, attempts }
        };
        let slow = attempts.iter().filter(|one| one.slow_attempts > 0);
        let slow = slow.map(|one| places(one, one.slow_seconds, one.slow_attempts));
        let slow = most(slow, limit, |one| one.places);
        let places = attempts.iter().map(|one| places(one, one.seconds, one.attempts));
        let places = most(places, limit, |one| one.places);
        let failing = failing(&attempts, failures, limit);
        let held = most(held, limit, |one| one.jobs as f64);
        Self { now, brakes, deliveries, cut_at, places, slow, failing, held, ready }
    }

    fn json(&self) -> Value {
        let brake =
            |one: &Brake| json!({"holder": one.holder, "reason": one.reason, "since": time_text::written(one.since)});
        let held = |one: &WebhookHeld| {
            json!({
                "webhook_id": one.webhook_id, "tenant_id": one.tenant_id, "jobs": one.jobs, "paused": one.paused,
                "oldest": one.oldest.and_then(time_text::written), "wake_at": one.release_at.and_then(time_text::written),
            })
        };
        json!({
            "at": time_text::written(self.now),
            "brakes": self.brakes.iter().map(brake).collect::<Vec<_>>(),
            "seconds": PERIOD.as_secs(),
            "deliveries": self.deliveries,
            "events_since": self.cut_at.and_then(time_text::written),
            "places": self.places,
            "slow": self.slow,
            "failing": self.failing,
            "held": self.held.iter().map(held).collect::<Vec<_>>(),
            "ready": self.ready.iter().copied().collect::<HashMap<_, _>>(),
        })
    }

    fn screen(&self) -> String {
        let cut_at = self.cut_at.and_then(time_text::written);
        let cut = cut_at.map(|at| {
            let none = if self.places.is_empty() { " none of them has an attempt in these minutes, and" } else { "" };
            format!(
                ": the latest {} deliveries, of events since {at};{none} attempts of older ones are not seen",
                self.deliveries
            )
        });
        let mut lines: Vec<_> = self.brakes.iter().map(described).collect();
        lines.push(format!("the last five minutes{}", cut.unwrap_or_default()));
        let mut part = |title: String, rows: Vec<String>| {
            lines.push(String::new());
            lines.push(title);
            let none = rows.is_empty().then(|| "  none".to_owned());
            lines.extend(rows.into_iter().chain(none));
        };
        let header = |first: &str, second: &str, last: &str| {
            format!("{first:>12} {second:>9}  {:36}  {:36}  {last}", "webhook", "tenant").trim_end().to_owned()
        };
        let row = |first: String, second: String, (webhook, tenant): (Uuid, Option<Uuid>), last: String| {
            let tenant = tenant.map_or_else(|| "-".to_owned(), |tenant| tenant.to_string());
            format!("{first:>12} {second:>9}  {webhook}  {tenant:36}  {last}").trim_end().to_owned()
        };
        let places = |one: &Places| {
            let webhook = (one.webhook_id, one.tenant_id);
            row(format!("{:.2}", one.places), one.attempts.to_string(), webhook, String::new())
        };
        part(header("places", "attempts", ""), self.places.iter().map(places).collect());
        part(header("slow places", "attempts", ""), self.slow.iter().map(places).collect());
        let rows = self.failing.iter().map(|one| {
            let failure = one.failure.clone().unwrap_or_default();
            row(one.failed.to_string(), String::new(), (one.webhook_id, one.tenant_id), failure)
        });
        part(header("failed", "", "why"), rows.collect());
        let rows = self.held.iter().map(|one| {
            let more = if one.jobs >= Top::MAX_HELD { "+" } else { "" };
            let why = if one.paused > 0 { "paused" } else { "slow" };
            let since = one.oldest.and_then(time_text::written).map(|at| format!("since {at}")).unwrap_or_default();
            row(format!("{}{more}", one.jobs), why.to_owned(), (one.webhook_id, one.tenant_id), since)
        });
        part(header("held jobs", "reason", ""), rows.collect());
        let ready = self.ready.iter().map(|(lane, ready)| match ready {
            Some(ready) => format!("{lane} {ready}"),
            None => format!("{lane} -"),
        });
        lines.extend([String::new(), format!("ready messages by lane: {}", ready.collect::<Vec<_>>().join(", "))]);
        lines.join("\n")
    }
}

/// The first `limit` of some webhooks, those with the largest number first.
fn most<T>(all: impl IntoIterator<Item = T>, limit: usize, number: impl Fn(&T) -> f64) -> Vec<T> {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_by(|one, other| number(other).total_cmp(&number(one)));
    all.truncate(limit);
    all
}

/// The webhooks that failed most. Either source misses some failures (retries of old deliveries, failures before a success),
/// so the larger number counts.
fn failing(attempts: &[WebhookAttempts], failures: Vec<WebhookFailures>, limit: usize) -> Vec<Failing> {
    let mut all: HashMap<Uuid, Failing> = HashMap::new();
    for one in failures {
        let WebhookFailures { webhook_id, tenant_id, failed, last_failure: failure } = one;
        all.insert(webhook_id, Failing { webhook_id, tenant_id: Some(tenant_id), failed, failure });
    }
    for one in attempts.iter().filter(|one| one.failed > 0) {
        let (webhook_id, tenant_id, failure) = (one.webhook_id, one.tenant_id, one.failure.clone());
        let entry = all.entry(webhook_id).or_insert(Failing { webhook_id, tenant_id, failed: 0, failure });
        entry.failed = entry.failed.max(one.failed);
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|one| (Reverse(one.failed), one.webhook_id));
    all.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn what_is_not_looked_at_is_said() {
        let now = datetime!(2026-03-01 09:30:00 UTC);
        let top = |deliveries, cut_at: Option<OffsetDateTime>| {
            let cut_at = cut_at.map(|at| DeliveryId::from(DeliveryId::bound_at(at)));
            let top = Top { now, attempts: Vec::new(), failures: Vec::new(), held: Vec::new(), deliveries, cut_at };
            Seen::of(Vec::new(), top, Vec::new(), 10)
        };
        let brake = Brake { holder: "operator".to_owned(), reason: "egress moves".to_owned(), since: now };
        let mut braked = top(6, None);
        braked.brakes.push(brake);
        assert!(
            braked.screen().starts_with("All dispatchers are braked since 2026-03-01T09:30:00"),
            "{}",
            braked.screen()
        );
        assert_eq!(braked.json()["brakes"][0]["reason"], "egress moves");
        assert!(top(6, None).screen().starts_with("the last five minutes\n"));
        let cut = top(100_000, Some(datetime!(2026-03-01 09:29:00 UTC)));
        assert_eq!(
            cut.screen().lines().next().unwrap(),
            "the last five minutes: the latest 100000 deliveries, of events since 2026-03-01T09:29:00.000000Z; none of them \
             has an attempt in these minutes, and attempts of older ones are not seen"
        );
        let json = cut.json();
        assert_eq!(
            (&json["deliveries"], &json["events_since"]),
            (&json!(100_000), &json!("2026-03-01T09:29:00.000000Z"))
        );
    }
}
