//! What was seen, before anybody judges it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use broker::{NodeSeen, Seen};
use ledger::{
    ConnectionsSeen, DaysSeen, GenerationSeen, KeyUse, MigrationsSeen, OverdueSeen, RetriesSeen, ServerCondition,
    WorkSeen,
};
use time::OffsetDateTime;

/// What a look has shown, or why it has shown nothing.
pub(super) type Looked<T> = Result<T, String>;

/// Everything that was seen.
pub(super) struct Observed {
    pub(super) settings: SettingsSeen,
    pub(super) database: Database,
    /// `None` when the settings name none.
    pub(super) broker: Option<BrokerSeen>,
    /// `None` when nobody asked for it.
    pub(super) cluster: Option<ClusterSeen>,
}

/// The settings, as far as they can be used.
#[derive(Default)]
pub(super) struct SettingsSeen {
    /// What a service says when it does not start.
    pub(super) faults: Vec<String>,
    /// Networks that are exempt from the address policy.
    pub(super) exempt: Vec<String>,
    /// `reconcile.grace`
    pub(super) grace: Duration,
    /// `retention.keep`
    pub(super) keep: Duration,
}

/// Whether the database answers.
pub(super) enum Database {
    /// The settings name none.
    Unknown,
    /// It does not answer.
    Away(String),
    /// It takes no writes. Nothing else was looked at: connections are made to a primary only.
    ReadOnly,
    /// It answers.
    Seen(Box<DatabaseSeen>),
}

/// The database and what is in it.
pub(super) struct DatabaseSeen {
    /// This machine's time less the database's, and how long the answer took.
    pub(super) clock: (time::Duration, Duration),
    /// The database's time.
    pub(super) now: OffsetDateTime,
    pub(super) server: Looked<ServerCondition>,
    pub(super) migrations: Looked<MigrationsSeen>,
    pub(super) days: Looked<DaysSeen>,
    /// `None` without keys.
    pub(super) keys: Option<Looked<KeysSeen>>,
    pub(super) connections: Looked<Vec<ConnectionsSeen>>,
    pub(super) generation: Looked<GenerationSeen>,
    pub(super) work: Looked<WorkSeen>,
    pub(super) retries: Looked<RetriesSeen>,
    pub(super) overdue: Looked<OverdueSeen>,
}

/// The sealing keys.
#[derive(Default)]
pub(super) struct KeysSeen {
    pub(super) configured: Vec<String>,
    pub(super) used: Vec<KeyUse>,
}

/// The broker, as a client sees it.
pub(super) struct BrokerSeen {
    pub(super) nodes: Vec<NodeSeen>,
    /// `None` when no node lets us in.
    pub(super) inside: Option<InsideSeen>,
}

/// What a client sees once it is let in.
pub(super) struct InsideSeen {
    /// `None` when it cannot be asked: the service's exchange is missing.
    pub(super) is_blocked: Option<Looked<bool>>,
    pub(super) exchanges: BTreeMap<String, Seen>,
    pub(super) queues: BTreeMap<String, Seen>,
    pub(super) roles: Roles,
    /// The sentinel queue that the ledger knows, if it knows one.
    pub(super) sentinel: Option<(String, Seen)>,
}

/// The names of the queues with a part of their own.
#[derive(Clone)]
pub(super) struct Roles {
    pub(super) events: String,
    pub(super) deliveries: String,
    pub(super) bulk: String,
    pub(super) slow: String,
    pub(super) rejected: String,
    pub(super) unknown_key: String,
    pub(super) dead: String,
    pub(super) unroutable: String,
    pub(super) notices: String,
}

/// The broker's cluster, as `rabbitmqctl` tells it.
pub(super) struct ClusterSeen {
    pub(super) vhost: String,
    pub(super) nodes: Looked<NodesSeen>,
    /// Nothing where a release has no such settings, or says them in another way.
    pub(super) waits: Looked<Option<WaitsSeen>>,
    pub(super) queues: Looked<Vec<MembersSeen>>,
    pub(super) policies: Looked<Vec<PolicySeen>>,
    pub(super) operator_policies: Looked<Vec<PolicySeen>>,
    pub(super) bindings: Looked<BTreeSet<Binding>>,
    /// The bindings that the service declares.
    pub(super) wanted: BTreeSet<Binding>,
}

/// Source, destination and routing key.
pub(super) type Binding = (String, String, String);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodesSeen {
    pub(super) all: Vec<String>,
    pub(super) running: Vec<String>,
    /// RabbitMQ's version by node.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) alarms: Vec<String>,
    pub(super) partitions: Vec<String>,
    /// Feature flags that are stable and not enabled.
    pub(super) disabled: Vec<String>,
}

/// What the asked node waits for when another one is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitsSeen {
    /// Seconds until the silent node counts as gone (`net_ticktime`; up to a quarter more).
    pub(super) silent_node_s: u64,
    /// Milliseconds until a retry queue hands on again what was not confirmed.
    pub(super) confirm_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MembersSeen {
    pub(super) name: String,
    pub(super) policy: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: Vec<String>,
    pub(super) online: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicySeen {
    pub(super) name: String,
    pub(super) pattern: String,
    /// Its keys with their values as JSON.
    pub(super) definition: BTreeMap<String, String>,
}

impl InsideSeen {
    /// Ready messages and consumers of a queue that is there.
    pub(super) fn of(&self, queue: &str) -> Option<(u32, u32)> {
        match self.queues.get(queue)? {
            Seen::Present { ready, consumers, .. } => Some((*ready, *consumers)),
            _ => None,
        }
    }
}

impl Observed {
    /// The database, if it answers.
    pub(super) fn database(&self) -> Option<&DatabaseSeen> {
        match &self.database {
            Database::Seen(seen) => Some(seen),
            _ => None,
        }
    }

    /// The broker, if it lets us in.
    pub(super) fn inside(&self) -> Option<&InsideSeen> {
        self.broker.as_ref()?.inside.as_ref()
    }
}
