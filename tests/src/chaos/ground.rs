//! The servers that a storm runs on.

use super::plan::Setup;
use crate::{
    cluster::Cluster,
    servers::{PrivateServers, Server, Servers},
};

/// The number of brokers of a cluster.
pub(super) const BROKERS: usize = 3;

/// The servers of a storm.
pub(super) enum Ground {
    Pair(PrivateServers),
    Cluster(Cluster),
}

impl Ground {
    pub(super) fn start(setup: Setup) -> Self {
        match setup {
            Setup::Pair => Self::Pair(PrivateServers::start()),
            Setup::Cluster => Self::Cluster(Cluster::start(BROKERS, 2)),
        }
    }

    pub(super) const fn servers(&self) -> &Servers {
        match self {
            Self::Pair(pair) => pair.servers(),
            Self::Cluster(cluster) => cluster.servers(),
        }
    }

    /// An interrupted storm may leave a server frozen, and then nothing can be cleaned up.
    pub(super) fn thaw(&self) {
        match self {
            Self::Pair(pair) => {
                pair.thaw_anyway(Server::Postgres);
                pair.thaw_anyway(Server::Rabbitmq);
            }
            Self::Cluster(cluster) => cluster.free(BROKERS),
        }
    }

    /// The pair, whose servers are faulted as a whole.
    pub(super) fn pair(&self) -> &PrivateServers {
        match self {
            Self::Pair(pair) => pair,
            Self::Cluster(_) => panic!("the plan of a cluster has ordeals of nodes"),
        }
    }

    /// The cluster, whose nodes suffer ordeals.
    pub(super) fn cluster(&self) -> &Cluster {
        match self {
            Self::Cluster(cluster) => cluster,
            Self::Pair(_) => panic!("a pair has no nodes"),
        }
    }
}
