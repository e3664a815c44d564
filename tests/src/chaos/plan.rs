//! The plan of a storm, from a seed alone: faults and published events.

use std::{fmt, time::Duration};

use domain::EventType;
use fastrand::Rng;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::{fixtures::now, ordeal::Ordeal};
use crate::{events::Event, servers::Server};

/// The options of a storm.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The same seed makes the same plan.
    pub seed: u64,
    /// How long faults are injected.
    pub length: Duration,
    /// Events a second, for all tenants together.
    pub rate: u32,
    /// What it runs on.
    pub setup: Setup,
}

/// The servers of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// One broker and one database.
    Pair,
    /// Three brokers that are one cluster, and a primary database with a synchronous standby.
    Cluster,
}

/// A process of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An ingest, by its number.
    Ingest(usize),
    /// A dispatcher, by its number.
    Dispatcher(usize),
    /// The API.
    Api,
}

impl Slot {
    /// All processes of the fleet.
    pub const ALL: [Self; 6] =
        [Self::Ingest(1), Self::Ingest(2), Self::Dispatcher(1), Self::Dispatcher(2), Self::Dispatcher(3), Self::Api];

    /// The name of its binary.
    pub const fn binary(self) -> &'static str {
        match self {
            Self::Ingest(_) => "event-ingest",
            Self::Dispatcher(_) => "dispatcher",
            Self::Api => "api-service",
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ingest(number) => write!(f, "ingest {number}"),
            Self::Dispatcher(number) => write!(f, "dispatcher {number}"),
            Self::Api => f.write_str("the API"),
        }
    }
}

/// Whose connections to a server a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Of every process and of half of the publishers.
    All,
    /// Of one process.
    Of(Slot),
}

/// An injected fault, with its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`, then a new process.
    Kill(Slot, Duration),
    /// A new process, and SIGTERM for the old one.
    Replace(Slot),
    /// SIGSTOP, then SIGCONT.
    Freeze(Slot, Duration),
    /// `kill -9` of a whole server, then a restart on its data.
    KillServer(Server, Duration),
    /// SIGSTOP of a whole server, then SIGCONT.
    FreezeServer(Server, Duration),
    /// Connections end.
    Cut(Line, Server),
    /// Connections stall: nothing passes in either direction.
    Stall(Line, Server, Duration),
    /// The server's answers do not arrive, then the connections end.
    LoseAnswers(Line, Server, Duration),
    /// Something happens to a node of a cluster.
    Ordeal(Ordeal, Duration),
}

/// A fault and its time since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// When it happens.
    pub at: Duration,
    /// What happens.
    pub fault: Fault,
}

/// An event and its time since the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// When it is published.
    pub at: Duration,
    /// Its id.
    pub id: Uuid,
    /// The number of the tenant.
    pub tenant: usize,
    /// One of the seven event types.
    pub event_type: EventType,
    /// Its data, byte for byte.
    pub data: String,
}

impl PlannedEvent {
    /// The event, which fires now.
    pub(super) fn happened(self, tenants: &[Uuid]) -> Event {
        let timestamp = now().format(&Rfc3339).expect("now can be written");
        Event { id: self.id, event_type: self.event_type, tenant: tenants[self.tenant], timestamp, data: self.data }
    }
}

/// Everything that is random in a storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order of time.
    pub faults: Vec<PlannedFault>,
    /// In the order of time.
    pub events: Vec<PlannedEvent>,
}

/// The tenants' shares of events. The one with the hanging receiver has few.
const EVENT_SHARES: [u32; 4] = [3, 3, 1, 3];
/// Seconds from one fault to the next, on average.
const SECONDS_PER_FAULT: f64 = 2.5;
/// Before the first fault and after the last one.
const CALM_PERIOD: Duration = Duration::from_secs(2);
/// A shorter storm has no freeze that outlasts a heartbeat.
const MIN_LONG_STORM: Duration = Duration::from_secs(90);

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self { faults: faults(options), events: events(options) }
    }
}

fn events(options: &Options) -> Vec<PlannedEvent> {
    let mut dice = Rng::with_seed(options.seed ^ 0xe7e7);
    let seconds = u32::try_from(options.length.as_secs()).unwrap_or(u32::MAX);
    let event = |number: u32| {
        let id = uuid::Builder::from_random_bytes(dice.u128(..).to_be_bytes()).into_uuid();
        let event_type = EventType::ALL[dice.usize(..EventType::ALL.len())];
        let tenant = pick(&mut dice, &EVENT_SHARES);
        // The order of members, the precision and the spaces have to survive.
        let data = format!(
            r#"{{"z": {number},"event":"{id}","price":{}.10,"text":"Ø \u00e9 {}"}}"#,
            dice.u64(..),
            "x".repeat(dice.usize(..600))
        );
        PlannedEvent { at: Duration::from_secs(1) * number / options.rate, id, tenant, event_type, data }
    };
    (0..seconds * options.rate).map(event).collect()
}

fn faults(options: &Options) -> Vec<PlannedFault> {
    let mut dice = Rng::with_seed(options.seed);
    let seconds = options.length.saturating_sub(CALM_PERIOD * 2).as_secs_f64();
    let count = ((seconds / SECONDS_PER_FAULT) as usize).max(1);
    let is_long = options.length >= MIN_LONG_STORM;
    let mut kinds: Vec<Kind> = Kind::MUST.into_iter().take(count).collect();
    // Servers take long to come back, so their kills are bounded.
    let mut budget = if is_long { options.length.as_secs() / 40 } else { 0 };
    while kinds.len() < count {
        let kind = Kind::ALL[pick(&mut dice, &Kind::WEIGHTS)];
        if kind == Kind::KillBroker || kind == Kind::KillDatabase {
            if budget == 0 {
                continue;
            }
            budget -= 1;
        }
        kinds.push(kind);
    }
    dice.shuffle(&mut kinds);
    let gap = seconds / count as f64;
    let fault = |(index, kind): (usize, Kind)| {
        let at = CALM_PERIOD + Duration::from_secs_f64((index as f64 + dice.f64() * 0.9) * gap);
        PlannedFault { at, fault: kind.roll(&mut dice, is_long) }
    };
    kinds.into_iter().enumerate().map(fault).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    KillDispatcher,
    KillIngest,
    KillApi,
    Replace,
    FreezeDispatcher,
    FreezeIngest,
    KillBroker,
    KillDatabase,
    FreezeServer,
    CutAll,
    CutOne,
    StallAll,
    StallOne,
    LoseAnswers,
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::KillDispatcher,
        Self::KillIngest,
        Self::KillApi,
        Self::Replace,
        Self::FreezeDispatcher,
        Self::FreezeIngest,
        Self::KillBroker,
        Self::KillDatabase,
        Self::FreezeServer,
        Self::CutAll,
        Self::CutOne,
        Self::StallAll,
        Self::StallOne,
        Self::LoseAnswers,
    ];
    const WEIGHTS: [u32; 14] = [8, 6, 2, 6, 5, 3, 2, 3, 3, 4, 5, 2, 4, 8];
    /// The kinds of every storm, as far as it is long enough.
    const MUST: [Self; 14] = [
        Self::KillDispatcher,
        Self::KillIngest,
        Self::KillBroker,
        Self::KillDatabase,
        Self::FreezeDispatcher,
        Self::LoseAnswers,
        Self::Replace,
        Self::CutAll,
        Self::StallAll,
        Self::FreezeIngest,
        Self::FreezeServer,
        Self::KillApi,
        Self::CutOne,
        Self::StallOne,
    ];

    fn roll(self, dice: &mut Rng, is_long: bool) -> Fault {
        let between = |dice: &mut Rng, low: f64, high: f64| Duration::from_secs_f64(low + dice.f64() * (high - low));
        let dispatcher = Slot::Dispatcher(dice.usize(1..=3));
        let ingest = Slot::Ingest(dice.usize(1..=2));
        let any = Slot::ALL[dice.usize(..Slot::ALL.len())];
        let server = if dice.bool() { Server::Postgres } else { Server::Rabbitmq };
        let short = between(dice, 0.2, 4.0);
        // After two missed heartbeats the broker gives a frozen process's jobs to others.
        let pause = if is_long && dice.u8(..4) == 0 { between(dice, 15.0, 25.0) } else { short };
        match self {
            Self::KillDispatcher => Fault::Kill(dispatcher, short / 2),
            Self::KillIngest => Fault::Kill(ingest, short / 2),
            Self::KillApi => Fault::Kill(Slot::Api, short / 2),
            Self::Replace => Fault::Replace(any),
            Self::FreezeDispatcher => Fault::Freeze(dispatcher, pause),
            Self::FreezeIngest => Fault::Freeze(ingest, pause),
            Self::KillBroker => Fault::KillServer(Server::Rabbitmq, short / 2),
            Self::KillDatabase => Fault::KillServer(Server::Postgres, short / 2),
            Self::FreezeServer => Fault::FreezeServer(server, if is_long { short * 2 } else { short }),
            Self::CutAll => Fault::Cut(Line::All, server),
            Self::CutOne => Fault::Cut(Line::Of(any), server),
            Self::StallAll => Fault::Stall(Line::All, server, short),
            Self::StallOne => Fault::Stall(Line::Of(any), server, pause),
            Self::LoseAnswers => Fault::LoseAnswers(Line::Of(any), server, short / 2),
        }
    }
}

/// A fault of a process or of its connections, which is over within seconds.
pub(super) fn short_fault(dice: &mut Rng) -> Fault {
    let kinds = [Kind::KillDispatcher, Kind::KillIngest, Kind::Replace, Kind::CutAll, Kind::CutOne, Kind::LoseAnswers];
    kinds[dice.usize(..kinds.len())].roll(dice, false)
}

/// Picks an index by its weight.
fn pick(dice: &mut Rng, weights: &[u32]) -> usize {
    let all: u32 = weights.iter().sum();
    let mut rest = dice.u32(..all);
    weights.iter().position(|weight| rest.checked_sub(*weight).map(|left| rest = left).is_none()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64, seconds: u64) -> Options {
        Options { seed, length: Duration::from_secs(seconds), rate: 40, setup: Setup::Pair }
    }

    #[test]
    fn the_same_seed_plans_the_same_storm_and_another_one_another() {
        assert_eq!(Plan::new(&options(7, 180)), Plan::new(&options(7, 180)));
        assert_ne!(Plan::new(&options(7, 180)).faults, Plan::new(&options(8, 180)).faults);
        assert_ne!(Plan::new(&options(7, 180)).events, Plan::new(&options(8, 180)).events);
    }

    #[test]
    fn a_storm_is_bounded_in_count_and_time_and_publishes_at_a_steady_rate() {
        for seed in 0..50 {
            let plan = Plan::new(&options(seed, 180));
            assert_eq!(plan.events.len(), 40 * 180);
            assert!(plan.events.iter().all(|event| event.at < Duration::from_secs(180)));
            assert!(plan.faults.len() <= 180);
            assert!(plan.faults.is_sorted_by_key(|planned| planned.at));
            assert!(plan.faults.iter().all(|planned| planned.at < Duration::from_secs(179)));
            let kills = |server| {
                let kills =
                    |planned: &&PlannedFault| matches!(planned.fault, Fault::KillServer(one, _) if one == server);
                plan.faults.iter().filter(kills).count()
            };
            assert!((1..=6).contains(&kills(Server::Rabbitmq)), "{}", kills(Server::Rabbitmq));
            assert!((1..=6).contains(&kills(Server::Postgres)));
        }
    }
}
