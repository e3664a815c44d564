//! The system that tests of one program share.

use std::sync::{Arc, LazyLock};

use tokio::{
    runtime::{Builder, Runtime},
    sync::OnceCell,
};

use super::{Options, Service, System};
use crate::{database::Session, servers::Servers};

/// The first of the advisory locks by which programs choose a number.
const NUMBERS: i64 = 0x5a7e_0000;

/// The name of the threads of the shared system.
pub(super) const THREAD: &str = "shared";
/// The beginning of its tag. A number follows.
const TAG: &str = "shared";

/// Outlives the runtimes of tests.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name(THREAD).enable_all().build().expect("threads can be made")
});

static SYSTEM: OnceCell<Arc<System>> = OnceCell::const_new();

/// The system, started by the first test that asks.
pub(super) async fn system() -> Arc<System> {
    let system = SYSTEM.get_or_init(async || RUNTIME.spawn(start()).await.expect("the shared system starts")).await;
    Arc::clone(system)
}

/// Starts it under the lowest number that no other program uses. What an earlier program left under that number is
/// removed first: statics are never dropped.
async fn start() -> Arc<System> {
    let session = Session::open(&Servers::shared().database_url).await;
    let mut number = 0;
    while !session.rows(&format!("SELECT pg_try_advisory_lock({})", NUMBERS + number)).await[0].get::<_, bool>(0) {
        number += 1;
    }
    // The session holds the lock until the program ends.
    std::mem::forget(session);
    let tag = format!("{TAG}{number}");
    System::named(&tag, Options::default()).await.remove().await;
    let system = System::prepare_as(&tag, Options::default()).await;
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.start(service).await;
    }
    Arc::new(system)
}

impl System {
    /// Returns true for the system that tests share.
    pub(super) fn is_shared(&self) -> bool {
        self.database.starts_with(&format!("e2e_{TAG}"))
    }
}
