//! Injects the faults.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    fleet::Fleet,
    ground::Ground,
    journal::Journal,
    ordeals::Ordeals,
    plan::{Fault, Line, PlannedFault},
};
use crate::{
    proxy::{Mode, Proxy},
    servers::{PrivateServers, Server},
};

/// What faults can hit.
pub(super) struct Victims {
    pub(super) fleet: Arc<Fleet>,
    pub(super) ground: Arc<Ground>,
    pub(super) ordeals: Ordeals,
    /// The proxy between half of the publishers and the broker.
    pub(super) upstream: Arc<Proxy>,
    pub(super) journal: Arc<Journal>,
    /// One fault of a server at a time.
    database: Mutex<()>,
    broker: Mutex<()>,
}

impl Victims {
    pub(super) fn new(
        fleet: Arc<Fleet>,
        ground: Arc<Ground>,
        upstream: Arc<Proxy>,
        journal: Arc<Journal>,
        ordeals: Ordeals,
    ) -> Self {
        Self { fleet, ground, ordeals, upstream, journal, database: Mutex::default(), broker: Mutex::default() }
    }

    /// Injects each fault at its time and waits until the last one is over.
    pub(super) async fn suffer(self: Arc<Self>, began: Instant, faults: Vec<PlannedFault>) {
        let mut suffering = JoinSet::new();
        for PlannedFault { at, fault } in faults {
            let this = Arc::clone(&self);
            suffering.spawn(async move {
                sleep_until(began + at).await;
                this.befall(fault).await;
            });
        }
        while let Some(suffered) = suffering.join_next().await {
            suffered.expect("a fault does not fail itself");
        }
    }

    async fn befall(&self, fault: Fault) {
        let say = || self.journal.say(format_args!("{fault:?}"));
        match fault {
            Fault::Kill(slot, away) => {
                say();
                self.fleet.kill(slot, away).await;
            }
            Fault::Replace(slot) => {
                say();
                self.fleet.replace(slot).await;
            }
            Fault::Freeze(slot, length) => {
                say();
                self.fleet.freeze(slot, length).await;
            }
            Fault::KillServer(server, away) => {
                let _alone = self.lock(server).lock().await;
                say();
                self.stack(move |servers| servers.kill(server)).await;
                sleep(away).await;
                self.stack(move |servers| servers.restart(server)).await;
                self.journal.say(format_args!("{server:?} is back"));
            }
            Fault::FreezeServer(server, length) => {
                let _alone = self.lock(server).lock().await;
                say();
                self.stack(move |servers| servers.freeze(server)).await;
                sleep(length).await;
                self.stack(move |servers| servers.thaw(server)).await;
            }
            Fault::Cut(line, server) => {
                say();
                self.cut(line, server);
            }
            Fault::Stall(line, server, length) => {
                say();
                self.for_a_while(line, server, Mode::Stall, length).await;
            }
            Fault::LoseAnswers(line, server, length) => {
                say();
                self.fleet.set(line, server, Mode::HoldAnswers);
                sleep(length).await;
                self.cut(line, server);
                self.fleet.set(line, server, Mode::Pass);
            }
            Fault::Ordeal(ordeal, length) => self.ordeals.befall(ordeal, length).await,
        }
    }

    async fn for_a_while(&self, line: Line, server: Server, mode: Mode, length: Duration) {
        let is_upstream = line == Line::All && server == Server::Rabbitmq;
        self.fleet.set(line, server, mode);
        if is_upstream {
            self.upstream.set(mode);
        }
        sleep(length).await;
        self.fleet.set(line, server, Mode::Pass);
        if is_upstream {
            self.upstream.set(Mode::Pass);
        }
    }

    fn cut(&self, line: Line, server: Server) {
        self.fleet.cut(line, server);
        if line == Line::All && server == Server::Rabbitmq {
            self.upstream.cut();
        }
    }

    const fn lock(&self, server: Server) -> &Mutex<()> {
        match server {
            Server::Postgres => &self.database,
            Server::Rabbitmq => &self.broker,
        }
    }

    /// The scripts block, so they run on another thread.
    async fn stack(&self, work: impl FnOnce(&PrivateServers) + Send + 'static) {
        let ground = Arc::clone(&self.ground);
        tokio::task::spawn_blocking(move || work(ground.pair())).await.expect("the stack script works");
    }
}
