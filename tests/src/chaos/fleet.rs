//! The processes, and a supervisor that restarts them as an orchestrator would.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use super::{
    journal::Journal,
    plan::{Line, Slot},
};
use crate::{
    processes::Process,
    proxy::{Mode, Proxy},
    servers::Server,
    system::{System, wait_ready},
};

/// How long a process may take to stop: the shutdown's deadline, and more for a busy machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);

/// The processes of [`Slot::ALL`].
pub(super) struct Fleet {
    berths: Vec<Berth>,
    journal: Arc<Journal>,
}

/// The place of a process, with proxies of its own to each node of database and broker.
struct Berth {
    slot: Slot,
    variables: HashMap<String, String>,
    database: Vec<Proxy>,
    broker: Vec<Proxy>,
    held: Mutex<Held>,
}

struct Held {
    process: Option<Process>,
    generation: usize,
}

impl Fleet {
    pub(super) async fn launch(system: &System, api: &HashMap<String, String>, journal: Arc<Journal>) -> Self {
        let berth = |slot| {
            let (database, database_url) = Proxy::before_all(&system.database_url);
            let (broker, amqp_url) = Proxy::before_all(&system.amqp_url);
            let mut variables = api.clone();
            variables.insert("WEBHOOKS__DATABASE__URL".to_owned(), database_url);
            variables.insert("WEBHOOKS__BROKER__URL".to_owned(), amqp_url);
            let held = Mutex::new(Held { process: None, generation: 0 });
            Berth { slot, variables, database, broker, held }
        };
        let this = Self { berths: Slot::ALL.into_iter().map(berth).collect(), journal };
        for berth in &this.berths {
            let process = this.start(berth, &mut *berth.held.lock().await);
            berth.held.lock().await.process = Some(process);
        }
        this.ready().await;
        this
    }

    fn start(&self, berth: &Berth, held: &mut Held) -> Process {
        held.generation += 1;
        let name = format!("{}-{}.log", berth.slot.to_string().replace(' ', "-"), held.generation);
        Process::spawn_logging_to(berth.slot.binary(), &berth.variables, self.journal.folder.join(name))
    }

    fn berth(&self, slot: Slot) -> &Berth {
        self.berths.iter().find(|berth| berth.slot == slot).expect("every slot has a berth")
    }

    /// Kills a process with `kill -9`. A new one starts after `away`.
    pub(super) async fn kill(&self, slot: Slot, away: Duration) {
        let berth = self.berth(slot);
        let mut held = berth.held.lock().await;
        drop(held.process.take());
        sleep(away).await;
        let process = self.start(berth, &mut held);
        held.process = Some(process);
    }

    /// Starts a new process and sends SIGTERM to the old one. The API keeps its port, so there the old one ends first.
    pub(super) async fn replace(&self, slot: Slot) {
        let berth = self.berth(slot);
        let mut held = berth.held.lock().await;
        let Some(old) = held.process.take() else { return };
        if slot == Slot::Api {
            self.end(slot, old).await;
            let process = self.start(berth, &mut held);
            held.process = Some(process);
        } else {
            let process = self.start(berth, &mut held);
            held.process = Some(process);
            self.end(slot, old).await;
        }
    }

    async fn end(&self, slot: Slot, mut process: Process) {
        let end = Instant::now() + STOP_TIMEOUT;
        // It may have started just now.
        while process.exit_status().is_none() && !process.handles_sigterm() && Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
        }
        if process.exit_status().is_none() {
            process.ask_to_stop();
        }
        while Instant::now() < end {
            if let Some(status) = process.exit_status() {
                if !status.success() {
                    self.journal.accuse(format_args!("{slot} was told to stop and ended with {status}"));
                }
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.journal.accuse(format_args!("{slot} did not end within {STOP_TIMEOUT:?}; {}", process.log.display()));
    }

    /// Sends SIGSTOP, and SIGCONT after `length`.
    pub(super) async fn freeze(&self, slot: Slot, length: Duration) {
        let held = self.berth(slot).held.lock().await;
        let Some(process) = &held.process else { return };
        process.freeze();
        sleep(length).await;
        process.thaw();
    }

    /// Sets what happens to the bytes between processes and a server.
    pub(super) fn set(&self, line: Line, server: Server, mode: Mode) {
        for proxy in self.proxies(line, server) {
            proxy.set(mode);
        }
    }

    /// Ends the connections between processes and a server.
    pub(super) fn cut(&self, line: Line, server: Server) {
        for proxy in self.proxies(line, server) {
            proxy.cut();
        }
    }

    fn proxies(&self, line: Line, server: Server) -> impl Iterator<Item = &Proxy> {
        let meant = move |berth: &&Berth| match line {
            Line::All => true,
            Line::Of(slot) => berth.slot == slot,
        };
        self.berths.iter().filter(meant).flat_map(move |berth| match server {
            Server::Postgres => &berth.database,
            Server::Rabbitmq => &berth.broker,
        })
    }

    /// Restarts processes that ended by themselves, forever. That is misconduct, not an injected fault.
    pub(super) async fn supervise(&self) {
        loop {
            for berth in &self.berths {
                let Ok(mut held) = berth.held.try_lock() else { continue };
                let Some(process) = &mut held.process else { continue };
                if let Some(status) = process.exit_status() {
                    let log = process.log.display();
                    self.journal.accuse(format_args!("{} ended by itself with {status}; {log}", berth.slot));
                    let process = self.start(berth, &mut held);
                    held.process = Some(process);
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    pub(super) async fn ready(&self) {
        for berth in &self.berths {
            let ops = berth.held.lock().await.process.as_ref().map(|process| process.ops);
            let Some(ops) = ops else { continue };
            crate::wait::eventually("the operations port is open", Duration::from_secs(60), || async {
                tokio::net::TcpStream::connect(ops).await.ok()
            })
            .await;
            wait_ready(ops).await;
        }
    }

    /// The operations addresses of the dispatchers.
    pub(super) async fn dispatchers(&self) -> Vec<std::net::SocketAddr> {
        let mut addresses = Vec::new();
        for berth in self.berths.iter().filter(|berth| matches!(berth.slot, Slot::Dispatcher(_))) {
            addresses.extend(berth.held.lock().await.process.as_ref().map(|process| process.ops));
        }
        addresses
    }
}
