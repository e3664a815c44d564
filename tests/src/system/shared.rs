//! The system that tests of one program share.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, LazyLock},
};

use futures_util::FutureExt;
use tokio::{
    runtime::{Builder, Runtime},
    sync::OnceCell,
    time::timeout,
};

use super::{Options, Service, System};
use crate::{database::Session, servers::Servers, wait::SOON};

/// The name of the threads of the shared system.
pub(super) const THREAD: &str = "shared";
/// The beginning of its tag. The tag of a system of its own follows.
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

/// Starts it under a new name, and then begins to remove what earlier programs left under theirs: statics are never
/// dropped. Not before: the deletion of a queue that the broker has just recovered may stop the only supervisor of its
/// dead-lettering.
async fn start() -> Arc<System> {
    let tag = format!("{TAG}_{}", System::new_tag());
    let session = Session::open(&Servers::shared().database_url).await;
    session.rows(&format!("SELECT pg_advisory_lock(hashtext('{tag}'))")).await;
    let system = System::prepare_as(&tag, Options::default()).await;
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.start(service).await;
    }
    // The session holds the lock of the name until the program ends.
    std::mem::forget(session);
    tokio::spawn(remove_leftovers());
    Arc::new(system)
}

/// Removes the systems whose names nobody has locked. What fails or takes long is left to the next program.
async fn remove_leftovers() {
    let session = Session::open(&Servers::shared().database_url).await;
    let all = format!("SELECT substr(datname, 5) FROM pg_database WHERE datname ~ '^e2e_{TAG}_'");
    for left in session.rows(&all).await {
        let left: &str = left.get(0);
        if session.rows(&format!("SELECT pg_try_advisory_lock(hashtext('{left}'))")).await[0].get(0) {
            let remove = async { System::named(left, Options::default()).await.remove().await };
            let _ = timeout(SOON, AssertUnwindSafe(remove).catch_unwind()).await;
        }
    }
}

impl System {
    /// Returns true for the system that tests share.
    pub(super) fn is_shared(&self) -> bool {
        self.database.starts_with(&format!("e2e_{TAG}"))
    }
}
