//! PostgreSQL and RabbitMQ with TLS, for clients that have a certificate.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
};

use end_to_end::{
    outsider::sql,
    proxy::target,
    receiver::{TestCa, Validity},
    servers::PrivateServers,
    wait::{SOON, until},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A private pair of servers, and the files of a client that they take. Without TLS they take anybody.
pub(crate) struct TlsServers {
    pub(crate) servers: PrivateServers,
    ca: TestCa,
    /// Where PostgreSQL's files are.
    data: PathBuf,
}

static SHARED: OnceCell<Mutex<TlsServers>> = OnceCell::const_new();

impl TlsServers {
    /// The pair that all tests share, one at a time. Its certificates are for `localhost` alone, and valid.
    pub(crate) async fn borrow() -> MutexGuard<'static, Self> {
        let servers = SHARED.get_or_init(async || Mutex::new(Self::start().await)).await.lock().await;
        servers.show(Validity::Valid).await;
        servers
    }

    async fn start() -> Self {
        let ca = TestCa::new();
        let (certificate, key) = ca.issue(&["localhost"], Validity::Valid);
        let servers = PrivateServers::start_prepared(|folder| {
            let folder = folder.join("rabbitmq/tls");
            write(&folder, "authority.pem", ca.pem());
            write(&folder, "server.pem", &certificate);
            write(&folder, "server.key", &key);
        });
        let url = servers.servers().database_url.clone();
        let data = PathBuf::from(sql(&url, "SHOW data_directory").await[0].get::<_, String>(0));
        let this = Self { data, ca, servers };
        this.write_as_postgres("authority.pem", this.ca.pem());
        this.write_as_postgres("server.crt", &certificate);
        this.write_as_postgres("server.key", &key);
        let rules = fs::read_to_string(this.data.join("pg_hba.conf")).unwrap();
        let rules = format!("hostssl all all all scram-sha-256 clientcert=verify-ca\n{rules}");
        this.write_as_postgres("pg_hba.conf", &rules);
        for setting in ["ssl_ca_file = 'authority.pem'", "ssl = on"] {
            sql(&url, &format!("ALTER SYSTEM SET {setting}")).await;
        }
        let (certificate, key) = this.ca.issue(&["client"], Validity::Valid);
        this.client_file("client.pem", &certificate);
        this.client_file("client.key", &key);
        this.client_file("authority.pem", this.ca.pem());
        this
    }

    /// Gives both servers a certificate of this kind.
    pub(crate) async fn show(&self, validity: Validity) {
        let (certificate, key) = self.ca.issue(&["localhost"], validity);
        let folder = self.servers.folder().join("rabbitmq/tls");
        write(&folder, "server.pem", &certificate);
        write(&folder, "server.key", &key);
        self.servers.rabbitmqctl(&["eval", "ssl:clear_pem_cache()."]);
        self.write_as_postgres("server.crt", &certificate);
        self.write_as_postgres("server.key", &key);
        let url = &self.servers.servers().database_url;
        let loaded = async || sql(url, "SELECT pg_conf_load_time()::text").await[0].get::<_, String>(0);
        let before = loaded().await;
        sql(url, "SELECT pg_reload_conf()").await;
        until("the settings are loaded", SOON, || async { loaded().await != before }).await;
    }

    /// Writes a file for clients, and returns its path.
    pub(crate) fn client_file(&self, name: &str, text: &str) -> String {
        write(&self.servers.folder().join("client"), name, text).display().to_string()
    }

    /// The path of such a file: `authority.pem`, `client.pem` and `client.key` are good.
    pub(crate) fn file(&self, name: &str) -> String {
        self.servers.folder().join("client").join(name).display().to_string()
    }

    /// The options of a connection string for a client with these files.
    pub(crate) fn options(&self, authority: &str, client: &str) -> String {
        let [authority, certificate, key] =
            [authority, &format!("{client}.pem"), &format!("{client}.key")].map(|name| self.file(name));
        format!("sslmode=verify-full&sslrootcert={authority}&sslcert={certificate}&sslkey={key}")
    }

    /// The URL of a database, with these hosts and options, if any.
    pub(crate) fn database(&self, url: &str, hosts: &[&str], options: &str) -> String {
        let (address, port) = (target(url).to_string(), target(url).port());
        let hosts: Vec<_> = hosts.iter().map(|host| format!("{host}:{port}")).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("{}{mark}{options}", url.replace(&address, &hosts.join(",")))
    }

    /// The URL of the broker by TLS.
    pub(crate) fn broker(&self, host: &str) -> String {
        let url = &self.servers.servers().amqp_url;
        let port = fs::read_to_string(self.servers.folder().join("keep/rabbitmq-tls.port")).unwrap();
        url.replace("amqp://", "amqps://").replace(&target(url).to_string(), &format!("{host}:{}", port.trim()))
    }

    fn write_as_postgres(&self, name: &str, text: &str) {
        let owner = fs::metadata(&self.data).unwrap();
        let path = write(&self.data, name, text);
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// Writes a file that only its owner may read.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}
