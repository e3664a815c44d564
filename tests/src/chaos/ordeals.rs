//! Ordeals: what happens to the nodes of a cluster, one at a time.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use time::OffsetDateTime;
use tokio::{sync::Mutex, task::spawn_blocking, time::sleep};

use super::{
    fixtures::now,
    gaps::Suffered,
    ground::{BROKERS, Ground},
    journal::Journal,
    ordeal::Ordeal,
};
use crate::cluster::{Cluster, Node};

/// Injects ordeals, and remembers when.
pub(super) struct Ordeals {
    ground: Arc<Ground>,
    journal: Arc<Journal>,
    /// The queue of due jobs.
    queue: String,
    /// The number of the primary database. Held during an ordeal.
    primary: Mutex<usize>,
    suffered: std::sync::Mutex<Vec<Suffered>>,
}

impl Ordeals {
    pub(super) fn new(ground: Arc<Ground>, journal: Arc<Journal>, queue: String) -> Self {
        Self { ground, journal, queue, primary: Mutex::new(1), suffered: std::sync::Mutex::default() }
    }

    pub(super) fn suffered(&self) -> Vec<Suffered> {
        self.suffered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Injects an ordeal, and waits until all nodes are back.
    pub(super) async fn befall(&self, ordeal: Ordeal, length: Duration) {
        let mut primary = self.primary.lock().await;
        let say = |what: &str| self.journal.say(format_args!("{ordeal:?}{what}"));
        let from = match ordeal {
            Ordeal::Kill(broker) => self.kill(ordeal, vec![broker], length).await,
            Ordeal::KillLeader => {
                let queue = self.queue.clone();
                let leader = self.on(move |cluster| cluster.leader_of(&queue, 1)).await;
                self.kill(ordeal, vec![leader], length).await
            }
            Ordeal::KillMajority(left) => {
                self.kill(ordeal, (1..=BROKERS).filter(|broker| *broker != left).collect(), length).await
            }
            Ordeal::Freeze(broker) => {
                say(&format!(", for {length:.0?}"));
                let from = now();
                self.on(move |cluster| cluster.freeze(Node::Broker(broker))).await;
                sleep(length).await;
                self.on(move |cluster| cluster.thaw(Node::Broker(broker))).await;
                from
            }
            Ordeal::Cut(_) if !self.ground.cluster().has_hosts() => {
                return say(": left out, as this machine has no network namespaces for it");
            }
            Ordeal::Cut(broker) => {
                say(&format!(", for {length:.0?}"));
                let from = now();
                self.on(move |cluster| cluster.cut(Node::Broker(broker))).await;
                sleep(length).await;
                self.on(move |cluster| cluster.reconnect(Node::Broker(broker))).await;
                from
            }
            Ordeal::Promote => self.promote(&mut primary, length).await,
        };
        say(": over");
        let over = now();
        self.suffered.lock().unwrap_or_else(PoisonError::into_inner).push(Suffered { ordeal, from, over });
    }

    /// Kills brokers, and starts them together: each may wait for the others.
    async fn kill(&self, ordeal: Ordeal, brokers: Vec<usize>, away: Duration) -> OffsetDateTime {
        self.journal.say(format_args!("{ordeal:?}: {brokers:?} away for {away:.0?}"));
        let from = now();
        self.on_each(&brokers, Cluster::kill).await;
        sleep(away).await;
        self.on_each(&brokers, Cluster::restart).await;
        from
    }

    async fn promote(&self, primary: &mut usize, away: Duration) -> OffsetDateTime {
        let (old, new) = (*primary, 3 - *primary);
        self.journal.say(format_args!("{:?}: database {old}", Ordeal::Promote));
        self.on(move |cluster| cluster.kill(Node::Database(old))).await;
        sleep(away).await;
        let from = now();
        self.on(move |cluster| cluster.promote(new)).await;
        self.journal.say(format_args!("database {new} is the primary"));
        self.on(move |cluster| cluster.rejoin(old)).await;
        *primary = new;
        from
    }

    async fn on_each(&self, brokers: &[usize], work: impl Fn(&Cluster, Node) + Send + Copy + 'static) {
        let each = brokers.iter().map(|broker| {
            let broker = *broker;
            self.on(move |cluster| work(cluster, Node::Broker(broker)))
        });
        futures_util::future::join_all(each).await;
    }

    /// The scripts block, so they run on another thread.
    async fn on<T: Send + 'static>(&self, work: impl FnOnce(&Cluster) -> T + Send + 'static) -> T {
        let ground = Arc::clone(&self.ground);
        spawn_blocking(move || work(ground.cluster())).await.expect("the cluster script works")
    }
}
