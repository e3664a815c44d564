//! The real binaries, as processes.

use std::{
    collections::HashMap,
    fs::File,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use crate::{
    proxy::Proxy,
    servers::repository,
    system::{System, wait_ready},
    wait::eventually,
};

/// The path of a binary of this build.
///
/// # Panics
/// When it is not built: `make build`.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().expect("this program has a path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built: run `make build`", path.display());
    path
}

/// A running process of the service. It is killed when dropped.
pub struct Process {
    child: Child,
    /// The address of its operations port.
    pub ops: SocketAddr,
    /// The path of its log.
    pub log: PathBuf,
    log_stays: bool,
}

impl Process {
    /// Starts a binary with these settings, without waiting.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, variables: &HashMap<String, String>) -> Self {
        Self::spawn_command(Command::new(binary(name)), name, variables)
    }

    /// Like [`Process::spawn`], with a hard limit of descriptors.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_with_descriptors(name: &str, variables: &HashMap<String, String>, descriptors: u32) -> Self {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\"")]).arg(binary(name));
        Self::spawn_command(limited, name, variables)
    }

    fn spawn_command(command: Command, name: &str, variables: &HashMap<String, String>) -> Self {
        let ops = free_address();
        let mut process = Self::spawn_logging(command, variables, ops, log_file(name, ops));
        process.log_stays = false;
        process
    }

    /// Like [`Process::spawn`], with a log that stays.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_logging_to(name: &str, variables: &HashMap<String, String>, log: PathBuf) -> Self {
        Self::spawn_logging(Command::new(binary(name)), variables, free_address(), log)
    }

    fn spawn_logging(mut command: Command, variables: &HashMap<String, String>, ops: SocketAddr, log: PathBuf) -> Self {
        let output = File::create(&log).expect("the log can be written");
        let child = command
            .env_clear()
            .envs(variables)
            .env("WEBHOOKS__OPS__LISTEN", ops.to_string())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output)
            .spawn()
            .expect("the binary starts");
        Self { child, ops, log, log_stays: true }
    }

    /// Starts a binary and waits until it is ready.
    pub async fn start(name: &str, variables: &HashMap<String, String>) -> Self {
        let process = Self::spawn(name, variables);
        eventually("the operations port is open", Duration::from_secs(30), || async {
            tokio::net::TcpStream::connect(process.ops).await.ok()
        })
        .await;
        wait_ready(process.ops).await;
        process
    }

    /// Like [`Process::start`], with a proxy in front of the broker.
    pub async fn start_behind_proxy(name: &str, mut variables: HashMap<String, String>) -> (Proxy, Self) {
        let (proxy, url) = Proxy::before(&variables["WEBHOOKS__BROKER__URL"]);
        variables.insert("WEBHOOKS__BROKER__URL".to_owned(), url);
        let process = Self::start(name, &variables).await;
        (proxy, process)
    }

    /// The process id, for `/proc`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and returns the exit status.
    ///
    /// # Panics
    /// When it does not end within 40 s.
    pub async fn terminate(mut self) -> ExitStatus {
        self.ask_to_stop();
        self.wait().await
    }

    /// Sends SIGTERM.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn ask_to_stop(&self) {
        self.signal("TERM");
    }

    /// Returns true once SIGTERM stops the process in order. Before that, the signal kills the process.
    pub fn handles_sigterm(&self) -> bool {
        const SIGTERM: u32 = 15;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        caught.is_some_and(|signals| signals & (1 << (SIGTERM - 1)) != 0)
    }

    /// Sends SIGSTOP: the process keeps its connections and does nothing.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Sends SIGCONT.
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
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// The number of its threads whose names begin with `name`.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn threads(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let named = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|own| own.starts_with(name));
        tasks.filter_map(|task| Some(task.ok()?.path())).filter(named).count()
    }

    /// Waits for the end and returns the exit status.
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

    /// The peak resident memory of the process, in bytes.
    pub fn peak_memory(&self) -> usize {
        peak_memory(self.pid())
    }

    /// The log so far.
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
            eprintln!(
                "the end of {}:\n{}",
                self.log.display(),
                lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..].join("\n")
            );
        }
        if !self.log_stays && !std::thread::panicking() {
            let _ = std::fs::remove_file(&self.log);
        }
    }
}

/// How many of the last log lines a failed test shows.
const SHOWN_LOG_LINES: usize = 30;

/// A free address, another one each time. Its port is below the range of outgoing connections, so none takes it
/// meanwhile.
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

/// The system's settings, with an API address that the system learns.
pub async fn with_api_address(system: &System) -> HashMap<String, String> {
    let address = free_address();
    system.api_is_at(address).await;
    system.with(&[("API__LISTEN", &address.to_string())])
}

/// The peak resident memory of a process, in bytes.
///
/// # Panics
/// When it does not run.
#[must_use]
pub fn peak_memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|kib| kib.trim().parse::<usize>().ok()).expect("a number of kB") * 1024
}

fn log_file(name: &str, ops: SocketAddr) -> PathBuf {
    let folder = repository().join("target/tests");
    std::fs::create_dir_all(&folder).expect("target/tests can be made");
    folder.join(format!("{name}-{}.log", ops.port()))
}
