//! Output of a failed test beside its message: the logs of its services, and the rows and messages of its system.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    sync::{LazyLock, Once},
    thread,
};

use tokio::time::timeout;
use tokio_postgres::NoTls;
use tracing_subscriber::{
    EnvFilter,
    fmt::{MakeWriter, TestWriter},
};

use super::{System, shared};
use crate::{
    outsider::Outsider,
    servers::{repository, stack_folder},
    wait::SOON,
};

/// The tables whose rows say what a system had yet to do or had done.
const STATES: &str = "SELECT 'deliveries ' || state, count(*) FROM deliveries GROUP BY 1 \
     UNION ALL SELECT 'attempts ' || outcome, count(*) FROM attempts GROUP BY 1 \
     UNION ALL SELECT 'held jobs', count(*) FROM held_jobs UNION ALL SELECT 'jobs in the outbox', count(*) FROM promised_jobs \
     UNION ALL SELECT 'webhooks', count(*) FROM webhooks ORDER BY 1";

/// Logs of the shared system: a thread's output belongs to the test that has started the thread, here to the first one.
static OF_SHARED: LazyLock<File> = LazyLock::new(|| {
    fs::create_dir_all(repository().join("target/tests")).expect("target/tests can be made");
    File::create(of_shared()).expect("target/tests can be written")
});

/// Where a log line goes.
struct Logs;

impl MakeWriter<'_> for Logs {
    type Writer = Box<dyn Write>;

    fn make_writer(&self) -> Self::Writer {
        match thread::current().name() {
            Some(shared::THREAD) => Box::new(&*OF_SHARED),
            _ => Box::new(TestWriter::new()),
        }
    }
}

fn of_shared() -> PathBuf {
    repository().join(format!("target/tests/shared-{}.log", std::process::id()))
}

/// Shows logs of services in the output of the test that runs them. The standard library keeps that output for a test
/// that fails.
pub(super) fn show_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("info,lapin=warn");
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Logs).with_ansi(false);
        let _ = logs.try_init();
    });
}

/// Prints what a system holds when its test fails.
pub(super) async fn explain(system: &System) {
    let seen = timeout(SOON, async { (rows(system).await, queues(system).await) }).await;
    let (rows, queues) = seen.unwrap_or_else(|_| ("no answer".to_owned(), "no answer".to_owned()));
    println!("\nWhat was there instead, in the system {}:", system.names.exchange());
    println!("  ledger: {rows}\n  messages ready: {queues}");
    println!("  retry.schedule {}; database {}", system.variables["WEBHOOKS__RETRY__SCHEDULE"], system.database_url);
    match system.is_shared() {
        true => println!("  logs of the services: {}", of_shared().display()),
        false => println!("  logs of the services in this process: above"),
    }
    println!("  logs of the servers: {}; of private ones: target/tests", stack_folder().join("log").display());
}

async fn rows(system: &System) -> String {
    let Ok((client, connection)) = tokio_postgres::connect(&system.database_url, NoTls).await else {
        return "the database does not answer".to_owned();
    };
    tokio::spawn(connection);
    match client.query(STATES, &[]).await {
        Ok(rows) => listed(rows.iter().map(|row| (row.get(0), row.get(1)))),
        Err(error) => error.to_string(),
    }
}

async fn queues(system: &System) -> String {
    let mut ready = BTreeMap::new();
    for queue in system.queues() {
        // A queue that is missing closes the channel, so each look has a connection of its own.
        let Ok(broker) = Outsider::try_connect(&system.amqp_url, "").await else {
            return "the broker does not answer".to_owned();
        };
        if let Some(messages) = broker.try_ready(&queue).await.filter(|messages| *messages > 0) {
            ready.insert(queue, i64::from(messages));
        }
        broker.close().await;
    }
    listed(ready.into_iter())
}

fn listed(counts: impl Iterator<Item = (String, i64)>) -> String {
    let counts: Vec<_> = counts.map(|(what, count)| format!("{count} {what}")).collect();
    if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
}
