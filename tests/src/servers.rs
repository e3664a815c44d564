//! The servers that tests use: PostgreSQL and RabbitMQ.

use std::{
    ops::Deref,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The repository's folder.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

/// The folder of the local stack, where libraries are installed.
#[must_use]
pub fn stack_folder() -> PathBuf {
    std::env::var_os("STACK_DIR").map_or_else(|| repository().join(".local"), PathBuf::from)
}

/// The addresses of PostgreSQL and RabbitMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// `postgres://…`
    pub database_url: String,
    /// `amqp://…`
    pub amqp_url: String,
}

impl Servers {
    /// The servers of the environment (`DATABASE_URL`, `AMQP_URL`), or else those that `make up` started.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn shared() -> Self {
        let stack = stack_folder().join("env");
        let find = |name: &str| std::env::var(name).ok().or_else(|| from_env_file(&stack, name));
        match (find("DATABASE_URL"), find("AMQP_URL")) {
            (Some(database_url), Some(amqp_url)) => Self { database_url, amqp_url },
            _ => panic!("no servers: run `make up` first, or set DATABASE_URL and AMQP_URL"),
        }
    }
}

fn from_env_file(path: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("export ")?.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('\'').to_owned())
}

/// A folder with private servers, and the script of `deploy/local` that runs them. They are removed when this is dropped,
/// or when this program ends in any way.
pub(crate) struct Stack {
    script: &'static str,
    folder: PathBuf,
    guardian: Child,
}

impl Stack {
    pub(crate) fn new(script: &'static str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{script}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = repository().join("target/tmp").join(name);
        std::fs::create_dir_all(folder.parent().expect("it has a parent")).expect("target/tmp can be made");
        Self { script, guardian: guardian(script, &folder), folder }
    }

    /// Runs the script, which must succeed. Returns what it prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        assert!(output.status.success(), "{} {arguments:?}: {}", self.script, String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn try_run(&self, arguments: &[&str]) -> Output {
        Command::new(repository().join("deploy/local").join(self.script))
            .args(arguments)
            .env("STACK_DIR", &self.folder)
            .stdin(Stdio::null())
            .output()
            .expect("the script runs")
    }

    /// A variable that the script has written.
    pub(crate) fn variable(&self, name: &str) -> String {
        from_env_file(&self.folder.join("env"), name).expect("the script writes its env file")
    }

    pub(crate) fn servers(&self) -> Servers {
        Servers { database_url: self.variable("DATABASE_URL"), amqp_url: self.variable("AMQP_URL") }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        if !self.guardian.wait().is_ok_and(|status| status.success()) {
            eprintln!("{} was not removed", self.folder.display());
        }
    }
}

/// A private pair of servers that a test may kill. It is removed when dropped, or when this program ends in any way.
pub struct PrivateServers {
    stack: Stack,
    servers: Servers,
}

/// A pair that tests of this program share, each for itself while it has this.
pub struct Borrowed {
    pair: Option<PrivateServers>,
    _permit: SemaphorePermit<'static>,
}

impl Deref for Borrowed {
    type Target = PrivateServers;

    fn deref(&self) -> &PrivateServers {
        self.pair.as_ref().expect("it is released by `drop` alone")
    }
}

impl Drop for Borrowed {
    /// A failed test may leave its pair in any state: no other test gets this pair.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            IDLE.lock().extend(self.pair.take());
        }
    }
}

/// One server of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The ledger.
    Postgres,
    /// The broker.
    Rabbitmq,
}

/// A pair takes some 300 MB of memory.
const MAX_SHARED_PAIRS: usize = 3;
static PERMITS: Semaphore = Semaphore::const_new(MAX_SHARED_PAIRS);
static IDLE: Mutex<Vec<PrivateServers>> = Mutex::new(Vec::new());

impl PrivateServers {
    /// Starts both servers. That takes about ten seconds.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_prepared(|_| {})
    }

    /// The same, after `prepare` has put files into their folder.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start_prepared(prepare: impl FnOnce(&Path)) -> Self {
        let stack = Stack::new("stack");
        prepare(&stack.folder);
        stack.run(&["up", "--private"]);
        Self { servers: stack.servers(), stack }
    }

    /// One of the pairs that the tests of this program share. Both servers run, whatever the last test did.
    ///
    /// # Panics
    /// When they do not start.
    pub async fn borrow() -> Borrowed {
        let permit = PERMITS.acquire().await.expect("nobody closes it");
        let idle = IDLE.lock().pop();
        let pair = idle.map_or_else(Self::start, |mut pair| {
            pair.thaw_anyway(Server::Postgres);
            pair.thaw_anyway(Server::Rabbitmq);
            pair.stack.run(&["up", "--private"]);
            pair.servers = pair.stack.servers();
            pair
        });
        Borrowed { pair: Some(pair), _permit: permit }
    }

    /// The addresses of the servers. A restart keeps the ports.
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Their folder.
    pub fn folder(&self) -> &Path {
        &self.stack.folder
    }

    /// The server's root process. It and its descendants are the server.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self, server: Server) -> u32 {
        let file = self.stack.folder.join("run").join(server.name());
        let text = std::fs::read_to_string(file).expect("the server runs");
        text.split(' ').next().and_then(|pid| pid.parse().ok()).expect("the stack writes its pid first")
    }

    /// Kills a server with `kill -9`.
    pub fn kill(&self, server: Server) {
        self.stack.run(&["kill", server.name()]);
    }

    /// Kills the broker and removes its data. [`PrivateServers::restart`] then starts an empty one.
    ///
    /// # Panics
    /// When its data cannot be removed.
    pub fn lose_brokers_disk(&self) {
        self.kill(Server::Rabbitmq);
        std::fs::remove_dir_all(self.stack.folder.join("rabbitmq/data")).expect("the data can be removed");
    }

    /// Starts a server that was killed or stopped, on the same data, and waits until it answers.
    pub fn restart(&self, server: Server) {
        self.stack.run(&["start", server.name()]);
        assert!(self.stack.servers() == self.servers, "the port of {} was taken meanwhile", server.name());
    }

    /// Sends SIGSTOP: the server keeps its connections and answers nothing.
    pub fn freeze(&self, server: Server) {
        self.stack.run(&["pause", server.name()]);
    }

    /// Sends SIGCONT.
    pub fn thaw(&self, server: Server) {
        self.stack.run(&["resume", server.name()]);
    }

    /// Sends SIGCONT and ignores errors.
    pub fn thaw_anyway(&self, server: Server) {
        let _ = self.stack.try_run(&["resume", server.name()]);
    }

    /// Runs `rabbitmqctl` on the broker and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn rabbitmqctl(&self, arguments: &[&str]) -> String {
        self.stack.run(&[&["rabbitmqctl", "-q"], arguments].concat())
    }

    /// Starts the broker's management API, until the broker's next start, and returns its address.
    ///
    /// # Panics
    /// When it does not start.
    pub fn management(&self) -> String {
        let plugins = self.stack.folder.join("rabbitmq/enabled_plugins");
        std::fs::write(&plugins, "[rabbitmq_management].").expect("the folder is ours");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.expect("a free port").port();
        let listen = format!("[{{port, {port}}}, {{ip, \"127.0.0.1\"}}]");
        let start = format!(
            "application:set_env(rabbitmq_management, tcp_config, {listen}, [{{persistent, true}}]), \
             {{ok, _, _}} = rabbit_plugins:ensure({:?}).",
            plugins.display().to_string()
        );
        self.rabbitmqctl(&["eval", &start]);
        format!("http://127.0.0.1:{port}")
    }

    /// Sets the size of the largest message that the broker accepts, in bytes. A channel reads it when it is opened.
    pub fn limit_messages(&self, bytes: usize) {
        // RabbitMQ 3.10 reads the first, 4.0 the second.
        let set = format!(
            "application:set_env(rabbit, max_message_size, {bytes}), persistent_term:put(max_message_size, {bytes})."
        );
        self.rabbitmqctl(&["eval", &set]);
    }

    /// The number of messages in a queue, ready or unacknowledged. Asks the queue, because the broker's lists are
    /// seconds old.
    ///
    /// # Panics
    /// When there is no such queue.
    #[must_use]
    pub fn messages(&self, queue: &str) -> u32 {
        let ask = format!(
            "{{ok, {{_, Messages}}, _}} = ra:leader_query({{'%2F_{queue}', node()}}, fun rabbit_fifo:query_messages_total/1), Messages."
        );
        self.rabbitmqctl(&["eval", &ask]).trim().parse().expect("a number")
    }
}

/// A process that removes the servers when its standard input ends: with this program at the latest. Their logs stay in
/// `target/tests`.
fn guardian(script: &str, folder: &Path) -> Child {
    let logs = repository().join("target/tests").join(folder.file_name().expect("it has a name"));
    let wait = "read -r _; mkdir -p \"$1\" && cp -r \"$STACK_DIR\"/log/. \"$1\" 2>/dev/null; exec \"$0\" destroy";
    Command::new("sh")
        .args(["-c", wait])
        .args([repository().join("deploy/local").join(script), logs])
        .env("STACK_DIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("a shell runs")
}

impl Server {
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Rabbitmq => "rabbitmq",
        }
    }
}
