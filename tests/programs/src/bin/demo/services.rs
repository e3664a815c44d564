//! The three services as processes.

use std::{fs, net::SocketAddr, process::ExitStatus, time::Duration};

use end_to_end::{api::Api, processes::Process, system::passes};
use futures_util::future::join_all;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    environment::Environment,
    failure::{Checked, Failure, same, soon},
    page::say,
};

pub(crate) const NAMES: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];

/// The running services. They are killed when dropped.
#[derive(Default)]
pub(crate) struct Services {
    running: Vec<(&'static str, Process)>,
}

impl Services {
    /// Migrates the database, starts all three and waits until they are ready.
    pub(crate) async fn start(&mut self, environment: &Environment) -> Checked {
        say!("  {:<14}{}", "webhookctl", environment.webhookctl(&["migrate"]).await?);
        for name in NAMES {
            let process = Process::spawn(name, &environment.variables);
            // A second name for the log, because the process removes its own when dropped.
            let kept = environment.folder.join(format!("{name}.log"));
            let linked = fs::hard_link(&process.log, &kept);
            self.running.push((name, process));
            linked.map_err(|error| Failure::new(kept.display(), "a log", error))?;
        }
        for (name, process) in &mut self.running {
            let ops = process.ops;
            tokio::select! {
                ended = process.wait() => return Err(too_early(name, ended)),
                ready = ready(name, ops) => ready?,
            }
            let rest =
                if *name == NAMES[0] { format!("   REST API on http://{}", environment.api) } else { String::new() };
            say!("  {name:<14}ready, metrics on http://{ops}/metrics{rest}");
        }
        Ok(())
    }

    /// The services that ended by themselves, with their exit status.
    pub(crate) async fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for (name, process) in &mut self.running {
            if let Ok(status) = timeout(Duration::ZERO, process.wait()).await {
                ended.push(format!("{name} had ended by itself: {status}"));
            }
        }
        ended
    }

    /// Sends SIGTERM to all three. Each has to end with exit code 0.
    pub(crate) async fn stop(&mut self) -> Checked {
        let stopping = self.running.drain(..).map(async |(name, process)| (name, process.terminate().await));
        let ended = join_all(stopping).await;
        for (name, status) in &ended {
            let what = format!("{name} after SIGTERM");
            same(what, &Some(0), &status.code()).map_err(|failure| failure.in_log_of(name))?;
        }
        let names: Vec<_> = ended.iter().map(|(name, _)| *name).collect();
        say!("  {}: exit code 0", names.join(", "));
        Ok(())
    }
}

fn too_early(name: &'static str, status: ExitStatus) -> Failure {
    Failure::new(format!("the start of {name}"), "a process that stays", status).in_log_of(name)
}

async fn ready(name: &'static str, ops: SocketAddr) -> Checked {
    let expected = "/readyz answers 200".to_owned();
    let came = soon(format!("the start of {name}"), &expected, || async {
        if TcpStream::connect(ops).await.is_err() {
            return format!("nothing listens on {ops}");
        }
        let answer = Api { address: ops, session: None }.get("/readyz").await;
        let reason = if passes(&answer) { String::new() } else { format!(": {}", answer.text) };
        format!("/readyz answers {}{reason}", answer.status)
    });
    came.await.map_err(|failure| failure.in_log_of(name))
}
