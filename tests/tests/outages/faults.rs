//! What the service does when something dies, freezes, fills up or is told to stop in the middle of its work. These
//! tests run the real binaries: only a process can be killed.
mod addresses;
mod consumers;
mod giants;
mod kills;
mod leaked_secret;
mod panics;
mod refusals;
mod rolling;
mod servers;
mod stopping;
mod storm;
mod windows;

use std::{collections::HashMap, time::Duration};

use end_to_end::{
    api::Api,
    processes::{Process, with_api_address},
    system::System,
    wait::eventually,
};

/// The deadline for work that keeps the machine busy or waits for a server.
const LONG: Duration = Duration::from_secs(60);

const INGEST: &str = "event-ingest";
const DISPATCHER: &str = "dispatcher";
const API: &str = "api-service";

/// Small batches and few attempts at a time, so that a fault finds work at every step.
fn settings() -> Vec<(&'static str, String)> {
    let settings = [
        ("INGEST__BATCH", "16"),
        // Several jobs to a message.
        ("INGEST__BATCH_ABOVE", "0"),
        ("DISPATCHER__BATCH", "32"),
        ("DISPATCHER__MAX_IN_FLIGHT", "64"),
        // Nothing is moved to the slow lane, which has tests of its own.
        ("DISPATCHER__WEBHOOK_SHARE", "1"),
        ("DISPATCHER__TENANT_SHARE", "1"),
        ("BROKER__CONFIRM_TIMEOUT", "2s"),
        ("LOG__LEVEL", "info"),
    ];
    settings.map(|(name, value)| (name, value.to_owned())).to_vec()
}

/// The three processes.
struct Processes {
    variables: HashMap<String, String>,
    api: Process,
    ingest: Process,
    dispatcher: Process,
}

impl Processes {
    async fn start(system: &System) -> Self {
        let variables = with_api_address(system).await;
        let start = async |name| Process::start(name, &variables).await;
        let (api, ingest, dispatcher) = tokio::join!(start(API), start(INGEST), start(DISPATCHER));
        Self { api, ingest, dispatcher, variables }
    }

    async fn again(&self, name: &str) -> Process {
        Process::start(name, &self.variables).await
    }

    const fn all(&self) -> [&Process; 3] {
        [&self.api, &self.ingest, &self.dispatcher]
    }
}

/// The status of `/readyz`, and what it says of one check.
async fn said(process: &Process, check: &str) -> (u16, String) {
    let answer = Api { address: process.ops, session: None }.get("/readyz").await;
    let text = answer.json()["checks"][check].as_str().unwrap_or_default().to_owned();
    (answer.status, text)
}

/// Waits until a process says that it is not ready because of `check`. Returns what it says.
async fn wait_unready(process: &Process, check: &str) -> String {
    let what = format!("/readyz answers 503 because of the {check}; see {}", process.log.display());
    eventually(&what, LONG, || async {
        let (status, text) = said(process, check).await;
        (status == 503 && text != "ok" && !text.is_empty()).then_some(text)
    })
    .await
}
