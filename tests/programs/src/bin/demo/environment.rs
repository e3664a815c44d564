//! The demonstration's environment on the given servers.

use std::{collections::HashMap, net::SocketAddr, panic::AssertUnwindSafe, path::PathBuf, process::Stdio};

use broker::{Names, Topology};
use domain::RetrySchedule;
use end_to_end::{
    outsider::sql,
    processes::{binary, free_address},
    receiver::TestCa,
    servers::Servers,
};
use futures_util::FutureExt;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::process::Command;
use uuid::Uuid;

use crate::failure::{Checked, Failure};

/// Six growing steps as in production, in seconds instead of hours.
const SCHEDULE: &str = "200ms,500ms,1s,1700ms,2600ms,3700ms";

/// A database, a queue prefix, a folder, a certificate authority and the services' settings.
pub(crate) struct Environment {
    pub(crate) servers: Servers,
    pub(crate) database: String,
    pub(crate) prefix: String,
    /// The logs and the authority's certificate. The folder stays when something failed.
    pub(crate) folder: PathBuf,
    pub(crate) ca: TestCa,
    pub(crate) schedule: RetrySchedule,
    /// The address of the REST API.
    pub(crate) api: SocketAddr,
    /// The settings of the services and of `webhookctl`.
    pub(crate) variables: HashMap<String, String>,
}

impl Environment {
    /// Chooses names and writes the certificate. Touches no server yet.
    pub(crate) fn new() -> Self {
        let servers = Servers::shared();
        let tag = Uuid::new_v4().simple().to_string()[..8].to_owned();
        let prefix = format!("demo-{tag}");
        let folder = std::env::temp_dir().join(&prefix);
        let mut environment = Self {
            servers,
            database: format!("demo_{tag}"),
            prefix,
            folder,
            ca: TestCa::new(),
            schedule: SCHEDULE.parse().expect("the schedule is good"),
            api: free_address(),
            variables: HashMap::new(),
        };
        environment.variables = environment.settings();
        environment
    }

    fn settings(&self) -> HashMap<String, String> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).expect("the system has randomness");
        let settings = [
            ("DATABASE__URL", self.database_url()),
            ("BROKER__URL", self.servers.amqp_url.clone()),
            ("BROKER__PREFIX", self.prefix.clone()),
            ("BROKER__EVENTS_EXCHANGE", self.names().events_exchange),
            ("API__LISTEN", self.api.to_string()),
            ("SECRETS__KEYS", format!("demo:{}", hex::encode(key))),
            ("RETRY__SCHEDULE", SCHEDULE.to_owned()),
            ("EGRESS__EXTRA_CA_FILE", self.ca.write_to(&self.folder).display().to_string()),
            ("EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8,::1/128".to_owned()),
        ];
        settings.into_iter().map(|(name, value)| (format!("WEBHOOKS__{name}"), value)).collect()
    }

    pub(crate) fn names(&self) -> Names {
        Names::new(&self.prefix, &format!("{}.business", self.prefix))
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::new(&self.names(), &self.schedule.gaps())
    }

    /// The demonstration's own database, on the server of `DATABASE_URL`.
    pub(crate) fn database_url(&self) -> String {
        let url = &self.servers.database_url;
        let (url, query) = url.find('?').map_or((url.as_str(), ""), |at| url.split_at(at));
        let (server, _) = url.rsplit_once('/').expect("DATABASE_URL names a database");
        format!("{server}/{}{query}", self.database)
    }

    pub(crate) async fn create_database(&self) -> Checked {
        let statement = format!("CREATE DATABASE {}", self.database);
        let created = AssertUnwindSafe(sql(&self.servers.database_url, &statement)).catch_unwind().await;
        created.map(drop).map_err(|panic| {
            let Failure { came, .. } = Failure::of_panic(panic.as_ref());
            Failure::new(format!("{statement} at DATABASE_URL"), "a server that obeys", came)
        })
    }

    /// Runs the operators' command line and returns what it printed.
    pub(crate) async fn webhookctl(&self, arguments: &[&str]) -> Checked<String> {
        let what = format!("webhookctl {}", arguments.join(" "));
        let output = Command::new(binary("webhookctl"))
            .args(arguments)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| Failure::new(&what, "to run", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(what, "exit code 0", format!("{}: {}", output.status, said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
