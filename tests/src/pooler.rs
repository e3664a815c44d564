//! PgBouncer in front of PostgreSQL, in the pool mode that a test wants.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use url::Url;

use crate::{
    processes::free_address,
    tools::{Tool, find},
    wait::{SOON, until},
};

/// A running PgBouncer. It is killed when dropped.
pub struct Pooler {
    child: Child,
    folder: PathBuf,
    fixed: String,
    /// The database's URL through the pooler.
    pub url: String,
}

impl Pooler {
    /// Starts one before a database, with further lines of its configuration, and waits until it answers. `None` if
    /// `SKIP` leaves PgBouncer out.
    ///
    /// # Panics
    /// When it is missing or does not start.
    pub async fn before(database_url: &str, mode: &str, lines: &str) -> Option<Self> {
        if !Tool::Pgbouncer.is_used() {
            return None;
        }
        let program = find(Path::new("pgbouncer"))?;
        let mut url = Url::parse(database_url).expect("the database has a URL");
        let listen = free_address();
        let fixed = format!(
            "[databases]\n* = host={} port={} user={} password={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = any\nmax_client_conn = 200\n{lines}\n",
            url.host_str().expect("a host"),
            url.port().unwrap_or(5432),
            url.username(),
            url.password().unwrap_or_default(),
            listen.port()
        );
        url.set_host(Some("127.0.0.1")).expect("it can be set");
        url.set_port(Some(listen.port())).expect("it can be set");
        let folder = std::env::temp_dir().join(format!("webhooks-pooler-{}-{}", std::process::id(), listen.port()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        configure(&folder, &fixed, mode);
        let mut command = Command::new(program);
        if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            // It refuses to run as root.
            command.args(["-u", "nobody"]);
        }
        let child = command.arg(folder.join("pgbouncer.ini")).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let pooler = Self { child: child.expect("PgBouncer runs"), folder, fixed, url: url.into() };
        until("PgBouncer answers", SOON, || async { tokio::net::TcpStream::connect(listen).await.is_ok() }).await;
        Some(pooler)
    }

    /// Changes the pool mode, as an operator does: the file and SIGHUP.
    ///
    /// # Panics
    /// When it does not run.
    pub fn change_mode(&self, mode: &str) {
        configure(&self.folder, &self.fixed, mode);
        let signalled = Command::new("kill").args(["-s", "HUP", &self.child.id().to_string()]).status();
        assert!(signalled.is_ok_and(|status| status.success()), "PgBouncer runs");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// It belongs to the user that PgBouncer becomes, because it is read again after that, and holds a password.
fn configure(folder: &Path, fixed: &str, mode: &str) {
    let path = folder.join("pgbouncer.ini");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).expect("a file can be made");
    writeln!(file, "{fixed}pool_mode = {mode}").expect("it can be written");
    // Only root can, and only root needs to.
    let _ = Command::new("chown").arg("nobody").arg(&path).stderr(Stdio::null()).status();
}
