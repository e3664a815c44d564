//! What was seen, before anybody judges it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use broker::{Names, NodeSeen, Seen};
use ledger::{
    AttemptsSeen, Brake, ConnectionsSeen, DaysSeen, GenerationSeen, KeyUse, MigrationsSeen, OverdueSeen, RetriesSeen,
    ServerCondition, WorkSeen,
};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;

/// What a look has shown, or why it has shown nothing.
pub(super) type Looked<T> = Result<T, String>;

/// Everything that was seen.
pub(super) struct Observed {
    pub(super) settings: SettingsSeen,
    pub(super) database: Database,
    /// `None` when the settings name none.
    pub(super) broker: Option<BrokerSeen>,
    /// `None` when the settings name no management API.
    pub(super) cluster: Option<Looked<ClusterSeen>>,
}

/// The settings, as far as they can be used.
#[derive(Default)]
pub(super) struct SettingsSeen {
    /// What a service says when it does not start.
    pub(super) faults: Vec<String>,
    /// Networks that are exempt from the address policy.
    pub(super) exempt: Vec<String>,
    /// Networks that no delivery goes to.
    pub(super) denied: Vec<String>,
    /// `retention.keep`
    pub(super) keep: Duration,
    /// `database.max_connections`
    pub(super) max_connections: usize,
}

/// Whether the database answers.
pub(super) enum Database {
    /// The settings name none.
    Unknown,
    /// It does not answer.
    Unavailable(String),
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
    pub(super) attempts: Looked<Vec<AttemptsSeen>>,
    pub(super) brakes: Looked<Vec<Brake>>,
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
    /// True if the broker accepts messages of more than 1 MiB. `None` as above.
    pub(super) accepts_larger: Option<Looked<bool>>,
    pub(super) exchanges: BTreeMap<String, Seen>,
    pub(super) queues: BTreeMap<String, Seen>,
    pub(super) names: Names,
    /// The sentinel queue that the ledger knows, if it knows one.
    pub(super) sentinel: Option<(String, Seen)>,
}

/// The broker's cluster, as RabbitMQ's management API shows it.
pub(super) struct ClusterSeen {
    pub(super) vhost: String,
    pub(super) nodes: Vec<ClusterNode>,
    pub(super) queues: Vec<ClusterQueue>,
    pub(super) bindings: BTreeSet<Binding>,
    /// The bindings that the service declares.
    pub(super) wanted: BTreeSet<Binding>,
}

/// A binding: from an exchange to a queue or an exchange.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Binding {
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) routing_key: String,
}

/// A node. The API shows a node without statistics by the first two fields alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterNode {
    pub(super) name: String,
    pub(super) running: bool,
    pub(super) mem_alarm: bool,
    pub(super) disk_free_alarm: bool,
    /// The nodes that it does not see.
    pub(super) partitions: Vec<String>,
    /// Seconds until a silent node counts as gone (up to a quarter more), unless they are being changed.
    pub(super) net_ticktime: Option<Value>,
    /// The parts of the node, such as `rabbit`, with their versions.
    pub(super) applications: Vec<Value>,
}

/// A queue. A queue that is not replicated has no members.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterQueue {
    pub(super) name: String,
    pub(super) policy: Option<String>,
    pub(super) operator_policy: Option<String>,
    /// The keys that both policies set. `None` without statistics.
    pub(super) effective_policy_definition: Option<Value>,
    pub(super) leader: Option<String>,
    pub(super) members: Vec<String>,
    pub(super) online: Vec<String>,
}

impl ClusterNode {
    /// The version of RabbitMQ.
    pub(super) fn version(&self) -> Option<&str> {
        self.applications.iter().find(|part| part["name"] == "rabbit")?["version"].as_str()
    }
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

    /// The broker's cluster, if the management API shows it.
    pub(super) fn cluster(&self) -> Option<&ClusterSeen> {
        self.cluster.as_ref()?.as_ref().ok()
    }

    /// The broker, if it lets us in.
    pub(super) fn inside(&self) -> Option<&InsideSeen> {
        self.broker.as_ref()?.inside.as_ref()
    }
}
