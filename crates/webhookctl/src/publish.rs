//! `webhookctl publish`: events as an upstream service publishes them.

use std::{fs, io::Read, num::NonZeroU32, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use broker::{Outgoing, Publisher, Unconfirmed};
use domain::{AcceptedPeriod, Event, EventType, TenantId, catalogue};
use serde_json::{Map, Value};
use service_kit::{Settings, shutdown};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{arguments::Misuse, away, connect, output};

/// The contract of `proto-schemas`.
const SCHEMA: &str = include_str!("../../../proto-schemas/event.schema.json");
/// The most events that are published before their confirms are awaited.
const MOST_AT_ONCE: u32 = 500;
/// With a rate: how often events are published.
const TURNS_PER_SECOND: u32 = 20;

/// Publishes events and waits until the broker has confirmed them, as an upstream service does.
///
/// Exit codes: 0 all are confirmed, or valid with `--dry-run`, 1 they are not, 2 arguments or settings that cannot be used.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The event type. Without a file, its sample is published.
    #[arg(required_unless_present = "file")]
    event_type: Option<EventType>,
    /// The event as JSON, or `-` for standard input. `event_id`, `event_type`, `tenant_id` and `timestamp` are filled in
    /// where they are missing.
    #[arg(long)]
    file: Option<PathBuf>,
    /// The tenant, where the file names none: a UUID.
    #[arg(long, value_name = "UUID", env = "WEBHOOKCTL_TENANT")]
    tenant: Option<TenantId>,
    /// How many events. Each gets an id and a time of its own, unless the file names them.
    #[arg(long, default_value = "1")]
    count: NonZeroU32,
    /// How many events a second [default: as fast as the broker confirms them].
    #[arg(long)]
    rate: Option<NonZeroU32>,
    /// Validates the event and prints it, and publishes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Publishes the events.
pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let draft = Draft::of(&arguments)?;
    let first = draft.event();
    let (event_type, id) = validate(&first, settings)?;
    if arguments.dry_run {
        return output::line(first);
    }
    let stop = shutdown::on_signals().context("signals cannot be handled")?;
    let broker = connect::broker(settings)?;
    // The publisher would try for ten seconds and then not say why.
    away::broker(broker.depth(&broker.names().events()).await)?;
    let publisher = broker.upstream(CancellationToken::new());
    let run = Run { publisher, event_type, began: Instant::now(), stop };
    if arguments.count.get() == 1 {
        run.publish(vec![first]).await?;
        let took = run.began.elapsed().as_millis();
        return output::line(format_args!("the broker has confirmed {event_type} {id} after {took} ms"));
    }
    run.publish_many(&draft, first, (arguments.count.get(), arguments.rate)).await
}

/// A connection, and what is published on it.
struct Run {
    publisher: Publisher,
    event_type: EventType,
    began: Instant,
    stop: CancellationToken,
}

impl Run {
    async fn publish(&self, events: Vec<String>) -> anyhow::Result<()> {
        let message = |event: String| Outgoing {
            queue: self.event_type.to_string(),
            body: event.into_bytes(),
            ..Outgoing::default()
        };
        let messages: Vec<_> = events.into_iter().map(message).collect();
        let published = self.stop.run_until_cancelled(self.publisher.publish_bulk(&messages)).await;
        published
            .context("stopped before the broker confirmed: the last events may have been published or not")?
            .map_err(not_confirmed)
    }

    async fn publish_many(
        &self,
        draft: &Draft,
        first: String,
        (count, rate): (u32, Option<NonZeroU32>),
    ) -> anyhow::Result<()> {
        let mut first = Some(first);
        let (mut done, mut failed) = (0, None);
        while done < count && failed.is_none() && !self.stop.is_cancelled() {
            let turn = match rate {
                None => MOST_AT_ONCE,
                Some(rate) => {
                    let due = self.began + Duration::from_secs(1).mul_f64(f64::from(done) / f64::from(rate.get()));
                    if self.stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
                        break;
                    }
                    (rate.get() / TURNS_PER_SECOND).clamp(1, MOST_AT_ONCE)
                }
            }
            .min(count - done);
            let events = (0..turn).map(|_| first.take().unwrap_or_else(|| draft.event())).collect();
            match self.publish(events).await {
                Ok(()) => done += turn,
                Err(error) => failed = Some(error),
            }
        }
        let took = self.began.elapsed().as_secs_f64();
        let rate = f64::from(done) / took;
        output::line(format_args!(
            "the broker has confirmed {done} of {count} {} in {took:.1} s: {rate:.0} a second",
            self.event_type
        ))?;
        failed.map_or(Ok(()), Err)
    }
}

fn not_confirmed(error: Unconfirmed) -> anyhow::Error {
    anyhow::Error::new(error).context("broker.url (WEBHOOKS__BROKER__URL)")
}

/// An event, with gaps.
struct Draft {
    /// A JSON object.
    text: String,
    gaps: Vec<Gap>,
}

/// A member that is filled in.
enum Gap {
    /// A new id for each event.
    Id,
    /// The time of each event.
    Now,
    Fixed(&'static str, String),
}

impl Draft {
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let (name, text) = match (&arguments.file, arguments.event_type) {
            (Some(path), _) => (path.display().to_string(), read(path)?),
            (None, Some(event_type)) => {
                ("the sample".to_owned(), format!("{{\"data\": {}}}", catalogue::sample(event_type)))
            }
            (None, None) => bail!(Misuse("name an event type".to_owned())),
        };
        let members: Map<String, Value> =
            serde_json::from_str(&text).with_context(|| format!("{name}: not a JSON object"))?;
        let mut gaps = Vec::new();
        let lacks = |member: &str| !members.contains_key(member);
        if let Some(given) = arguments.event_type {
            let same = members.get("event_type").is_none_or(|named| named == given.as_str());
            ensure!(same, Misuse(format!("{name}: event_type is {}, not {given}", members["event_type"])));
            if lacks("event_type") {
                gaps.push(Gap::Fixed("event_type", given.to_string()));
            }
        }
        if lacks("tenant_id") {
            let tenant = arguments.tenant.ok_or_else(|| Misuse("--tenant: say for which tenant".to_owned()))?;
            gaps.push(Gap::Fixed("tenant_id", tenant.to_string()));
        }
        if lacks("event_id") {
            gaps.push(Gap::Id);
        }
        if lacks("timestamp") {
            gaps.push(Gap::Now);
        }
        Ok(Self { text: text.trim().to_owned(), gaps })
    }

    /// The event with its gaps filled. What was there stays as it is, byte for byte.
    fn event(&self) -> String {
        let filled = self.gaps.iter().map(|gap| match gap {
            Gap::Id => format!("\"event_id\": \"{}\"", Uuid::now_v7()),
            Gap::Now => format!("\"timestamp\": \"{}\"", now()),
            Gap::Fixed(member, value) => format!("\"{member}\": \"{value}\""),
        });
        let mut members: Vec<_> = filled.collect();
        let given = self.text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().trim();
        if !given.is_empty() {
            members.push(given.to_owned());
        }
        format!("{{{}}}", members.join(", "))
    }
}

fn now() -> String {
    OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default()
}

fn read(path: &PathBuf) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| Misuse(format!("--file {}: cannot be read", path.display())))
}

/// Checks an event by the schema, and by what a schema cannot say. Returns its type and its id.
fn validate(event: &str, settings: &Settings) -> anyhow::Result<(EventType, String)> {
    let schema: Value = serde_json::from_str(SCHEMA).context("the schema is not JSON")?;
    let validator = jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&schema)
        .map_err(|error| anyhow!("the schema cannot be used: {error}"))?;
    let value: Value = serde_json::from_str(event).context("not JSON")?;
    let faults: Vec<_> = validator
        .iter_errors(&value)
        .map(|fault| match fault.instance_path().as_str() {
            "" => fault.to_string(),
            path => format!("{}: {fault}", path.trim_start_matches('/')),
        })
        .collect();
    ensure!(faults.is_empty(), "not an event by event.schema.json: {}", faults.join("; "));
    let event = Event::parse(event.as_bytes(), settings.limits.event_data_bytes)?;
    AcceptedPeriod::at(OffsetDateTime::now_utc(), settings.retention.keep).check(event.timestamp)?;
    Ok((event.event_type, event.id.to_string()))
}
