//! The real binaries.

use std::{
    collections::HashMap,
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use crate::{
    proxy::Proxy,
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
    log_stays: bool,
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
        let mut process = Self::spawn_logging(name, environment, ops, log);
        process.log_stays = false;
        process
    }

    /// The same with a log that stays when the process is gone.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_logging_to(name: &str, environment: &HashMap<String, String>, log: PathBuf) -> Self {
        Self::spawn_logging(name, environment, free_address(), log)
    }

    fn spawn_logging(name: &str, environment: &HashMap<String, String>, ops: SocketAddr, log: PathBuf) -> Self {
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
        Self { child, ops, log, log_stays: true }
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

    /// The same, with a proxy before the broker.
    pub async fn start_behind_proxy(name: &str, mut environment: HashMap<String, String>) -> (Proxy, Self) {
        let (proxy, url) = Proxy::before(&environment["WEBHOOKS__BROKER__URL"]);
        environment.insert("WEBHOOKS__BROKER__URL".to_owned(), url);
        let process = Self::start(name, &environment).await;
        (proxy, process)
    }

    /// Its number, for a look into `/proc`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        self.ask_to_stop();
        self.wait().await
    }

    /// SIGTERM.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn ask_to_stop(&self) {
        self.signal("TERM");
    }

    /// SIGSTOP: it keeps its connections and does nothing.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([signal, pid]).status().expect("kill runs").success());
    }

    /// The exit status, if it has ended.
    ///
    /// # Panics
    /// When the system does not know it.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// How many of its threads have a name that begins so.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn threads(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let named = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|own| own.starts_with(name));
        tasks.filter_map(|task| Some(task.ok()?.path())).filter(named).count()
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

    /// The most memory that it ever had, in bytes.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak.and_then(|kib| kib.trim().parse::<usize>().ok()).expect("a number of kB") * 1024
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
        if std::thread::panicking() {
            let log = self.logged();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("the end of {}:\n{}", self.log.display(), lines[lines.len().saturating_sub(SHOWN)..].join("\n"));
        }
        if !self.log_stays {
            let _ = std::fs::remove_file(&self.log);
        }
    }
}

/// How many of the last lines of its log are shown when a test fails.
const SHOWN: usize = 30;

/// An address on which nobody listens now: one that was not given out before, and that no outgoing connection takes
/// meanwhile, as it is below the range that those are given.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 100).expect("it is below 100") * 100;
    let port = || 10_000 + (own + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
    let mut free = std::iter::repeat_with(|| SocketAddr::from(([127, 0, 0, 1], port())));
    free.find(|address| TcpListener::bind(address).is_ok()).expect("there is a free port")
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
