//! Several brokers that are one cluster, and a primary database with a synchronous standby (`deploy/local/cluster`).

use std::fmt;

use crate::servers::{Servers, Stack};

/// A private cluster that a test may break. It is removed when dropped, or when this program ends in any way.
pub struct Cluster {
    stack: Stack,
    servers: Servers,
    has_hosts: bool,
}

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A broker.
    Broker(usize),
    /// A database: the primary or its standby.
    Database(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(number) => write!(f, "broker{number}"),
            Self::Database(number) => write!(f, "database{number}"),
        }
    }
}

impl Cluster {
    /// Starts all nodes. With three brokers and two databases that takes about 30 s.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start(brokers: usize, databases: usize) -> Self {
        let stack = Stack::new("cluster");
        stack.run(&["up", &brokers.to_string(), &databases.to_string()]);
        let has_hosts = stack.variable("CLUSTER_HOSTS") == "namespaces";
        Self { servers: stack.servers(), has_hosts, stack }
    }

    /// The addresses of all nodes.
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Whether each node has a host of its own, so that it can be cut off.
    pub const fn has_hosts(&self) -> bool {
        self.has_hosts
    }

    /// Kills a node with `kill -9`.
    pub fn kill(&self, node: Node) {
        self.stack.run(&["kill", &node.to_string()]);
    }

    /// Starts a node that was killed, on its data, and waits until it answers.
    pub fn restart(&self, node: Node) {
        self.stack.run(&["start", &node.to_string()]);
    }

    /// Sends SIGSTOP: the node keeps its connections and answers nothing.
    pub fn freeze(&self, node: Node) {
        self.stack.run(&["pause", &node.to_string()]);
    }

    /// Sends SIGCONT.
    pub fn thaw(&self, node: Node) {
        self.stack.run(&["resume", &node.to_string()]);
    }

    /// Takes a node's host off the network.
    pub fn cut(&self, node: Node) {
        self.stack.run(&["cut", &node.to_string()]);
    }

    /// Puts it back.
    pub fn reconnect(&self, node: Node) {
        self.stack.run(&["reconnect", &node.to_string()]);
    }

    /// Makes a standby the primary. The other database must not run.
    pub fn promote(&self, database: usize) {
        self.stack.run(&["promote", &Node::Database(database).to_string()]);
    }

    /// Makes a database a synchronous standby of the other one, from a new copy.
    pub fn rejoin(&self, database: usize) {
        self.stack.run(&["rejoin", &Node::Database(database).to_string()]);
    }

    /// Runs `rabbitmqctl` on a broker and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn rabbitmqctl(&self, broker: usize, arguments: &[&str]) -> String {
        self.stack.run(&[&["rabbitmqctl", &Node::Broker(broker).to_string(), "-q"], arguments].concat())
    }

    /// The broker that leads a queue, as another broker knows it.
    ///
    /// # Panics
    /// When there is no such queue.
    #[must_use]
    pub fn leader_of(&self, queue: &str, asked: usize) -> usize {
        let ask = format!(
            "{{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)), \
             {{_, Node}} = amqqueue:get_pid(Queue), Node."
        );
        let node = self.rabbitmqctl(asked, &["eval", &ask]);
        let number = node.split_once('@').and_then(|(name, _)| name.rsplit('-').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{node:?} is no node"))
    }

    /// Ends freezes and cuts, and ignores errors: for an interrupted test.
    pub fn free(&self, brokers: usize) {
        for number in 1..=brokers {
            let node = Node::Broker(number).to_string();
            let _ = self.stack.try_run(&["resume", &node]);
            let _ = self.stack.try_run(&["reconnect", &node]);
        }
    }
}
