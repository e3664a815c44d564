//! `webhookctl publish`: events as an upstream service publishes them.

use std::{fs, num::NonZeroU32, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use broker::{Outgoing, Publisher};
use domain::{AcceptedPeriod, Event, EventType, TenantId, catalogue};
use serde_json::{Map, Value};
use service_kit::{Settings, shutdown};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    arguments::{Misuse, stdin},
    connect, output, server_error,
};

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
    /// Publishes also to a broker that is not on this machine.
    #[arg(long)]
    yes: bool,
}

/// Publishes the events.
pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let draft = Draft::of(&arguments)?;
    let first = draft.event();
    let (event_type, id) = validate(&first, settings)?;
    if arguments.dry_run {
        // JSON has line ends between its values only.
        return output::line(first.replace('\r', ""));
    }
    let stop = shutdown::on_signals().context("signals cannot be handled")?;
    let broker = connect::broker(settings)?;
    let elsewhere = broker.elsewhere();
    ensure!(
        arguments.yes || elsewhere.is_empty(),
        "nothing was published: broker.url (WEBHOOKS__BROKER__URL) names {}, not this machine; the event is delivered to the \
         tenant's receivers: run the command again with --yes",
        elsewhere.join(", ")
    );
    // The publisher would try for ten seconds and then not say why.
    server_error::broker(broker.depth(&broker.names().events()).await)?;
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
            routing_key: self.event_type.to_string(),
            body: event.into_bytes(),
            ..Outgoing::default()
        };
        let messages: Vec<_> = events.into_iter().map(message).collect();
        let published = self.stop.run_until_cancelled(self.publisher.publish_bulk(&messages)).await;
        published
            .context("stopped before the broker confirmed: the last events may have been published or not")?
            .context("broker.url (WEBHOOKS__BROKER__URL)")
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

/// An event, without the members that differ from one event to the next.
struct Draft {
    /// The members that are there, as JSON.
    members: Vec<String>,
    lacks_id: bool,
    lacks_time: bool,
}

impl Draft {
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let (name, text) = match (&arguments.file, arguments.event_type) {
            (Some(path), _) if path.as_os_str() == "-" => ("standard input".to_owned(), stdin()?),
            (Some(path), _) => {
                let text = fs::read_to_string(path);
                let unreadable = || Misuse(format!("--file {}: cannot be read", path.display()));
                (path.display().to_string(), text.with_context(unreadable)?)
            }
            (None, Some(event_type)) => {
                ("the sample".to_owned(), format!("{{\"data\": {}}}", catalogue::sample(event_type)))
            }
            (None, None) => bail!(Misuse("name an event type".to_owned())),
        };
        let given: Map<String, Value> =
            serde_json::from_str(&text).with_context(|| format!("{name}: not a JSON object"))?;
        let lacks = |member: &str| !given.contains_key(member);
        let mut members = Vec::new();
        if let Some(wanted) = arguments.event_type {
            let same = given.get("event_type").is_none_or(|named| named == wanted.as_str());
            ensure!(same, Misuse(format!("{name}: event_type is {}, not {wanted}", given["event_type"])));
            if lacks("event_type") {
                members.push(format!("\"event_type\": \"{wanted}\""));
            }
        }
        if lacks("tenant_id") {
            let tenant = arguments.tenant.ok_or_else(|| Misuse("--tenant: say for which tenant".to_owned()))?;
            members.push(format!("\"tenant_id\": \"{tenant}\""));
        }
        // What was given stays as it is, byte for byte.
        let text = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().trim();
        members.extend((!text.is_empty()).then(|| text.to_owned()));
        Ok(Self { members, lacks_id: lacks("event_id"), lacks_time: lacks("timestamp") })
    }

    /// The event, with an id and a time of its own where the file names none.
    fn event(&self) -> String {
        let mut members = Vec::new();
        if self.lacks_id {
            members.push(format!("\"event_id\": \"{}\"", Uuid::now_v7()));
        }
        if self.lacks_time {
            let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
            members.push(format!("\"timestamp\": \"{now}\""));
        }
        format!("{{{}}}", [members, self.members.clone()].concat().join(", "))
    }
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
    AcceptedPeriod::at(OffsetDateTime::now_utc(), settings.retention.kept().bodies).check(event.timestamp)?;
    Ok((event.event_type, event.id.to_string()))
}
