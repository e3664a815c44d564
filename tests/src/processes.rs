//! The real binaries.

use std::{
    collections::HashMap,
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::{
    system::{System, wait_ready},
    wait::eventually,
};

/// A binary of this build.
///
/// # Panics
/// When it was not built: `cargo build --workspace --bins` does.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().expect("this program has a path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --workspace --bins`", path.display());
    path
}

/// A running process of the service; killed when dropped.
pub struct Process {
    child: Child,
    /// Its operations address.
    pub ops: SocketAddr,
    /// What it logged.
    pub log: PathBuf,
}

impl Process {
    /// Starts a binary with the system's settings. It is not waited for.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, environment: &HashMap<String, String>) -> Self {
        let ops = free_address();
        let log = log_file(name, ops);
        let output = File::create(&log).expect("the log can be written");
        let child = Command::new(binary(name))
            .env_clear()
            .envs(environment)
            .env("WEBHOOKS__OPS__LISTEN", ops.to_string())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output)
            .spawn()
            .expect("the binary starts");
        Self { child, ops, log }
    }

    /// Starts a binary and waits until it is ready.
    pub async fn start(name: &str, environment: &HashMap<String, String>) -> Self {
        let process = Self::spawn(name, environment);
        eventually("the operations port is open", Duration::from_secs(30), || async {
            tokio::net::TcpStream::connect(process.ops).await.ok()
        })
        .await;
        wait_ready(process.ops).await;
        process
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and the exit status.
    ///
    /// # Panics
    /// When it does not end within 40 s.
    pub async fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        self.wait().await
    }

    /// The exit status.
    ///
    /// # Panics
    /// When it does not end within 40 s.
    pub async fn wait(&mut self) -> ExitStatus {
        let log = self.log.clone();
        let child = std::sync::Mutex::new(&mut self.child);
        let what = format!("the process ends; see {}", log.display());
        eventually(&what, Duration::from_secs(40), || async { child.lock().ok()?.try_wait().expect("it is our child") })
            .await
    }

    /// What it logged so far.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// An address on which nobody listens now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there is a free port")
}

/// The settings of a system with the API on an address of its own, which the system is told.
pub async fn with_api_address(system: &System) -> HashMap<String, String> {
    let address = free_address();
    system.api_is_at(address).await;
    let mut environment = system.environment.clone();
    environment.insert("WEBHOOKS__API__LISTEN".to_owned(), address.to_string());
    environment
}

fn log_file(name: &str, ops: SocketAddr) -> PathBuf {
    let folder: &Path = &std::env::temp_dir();
    folder.join(format!("e2e-{name}-{}.log", ops.port()))
}
