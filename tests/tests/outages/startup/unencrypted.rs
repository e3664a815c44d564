//! What leaves this machine without TLS is said, once.

use end_to_end::{
    commands::{Ran, webhookctl},
    processes::Process,
    system::{Options, TestSystem},
};
use uuid::Uuid;

use crate::startup::{ALL, waiting::logs};

/// It is no address of the loopback interface, and yet leads there.
const ELSEWHERE: &str = "0.0.0.0";

/// Settings of URLs that may be `http`.
const URLS: [&str; 3] =
    ["WEBHOOKS__TRACES__ENDPOINT", "WEBHOOKS__API__INTROSPECTION_URL", "WEBHOOKS__BROKER__MANAGEMENT_URL"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_elsewhere_without_tls_is_warned_of_once_by_each_service() {
    let system = TestSystem::prepared(Options::default()).await;
    for (host, times) in [(ELSEWHERE, 1), ("localhost", 0)] {
        let mut variables = system.variables.clone();
        for (name, url) in [("DATABASE", format!("postgres://a:b@{host}:1/c")), ("BROKER", format!("amqp://{host}:1"))]
        {
            variables.insert(format!("WEBHOOKS__{name}__URL"), url);
        }
        for name in URLS {
            variables.insert(name.to_owned(), format!("http://{host}:1"));
        }
        variables.insert("WEBHOOKS__API__SESSIONS".to_owned(), "introspection".to_owned());
        for process in ALL.map(|name| Process::spawn(name, &variables)) {
            let servers = ["WEBHOOKS__DATABASE__URL", "WEBHOOKS__BROKER__URL"];
            for setting in servers {
                logs(&process, 3, &["WARN", setting, "trying again"]).await;
            }
            let log = process.logged();
            for setting in servers.into_iter().chain(URLS) {
                let warnings = log.lines().filter(|line| line.contains("is not encrypted") && line.contains(setting));
                assert_eq!(warnings.count(), times, "{log}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_warns_on_standard_error_alone() {
    let system = TestSystem::prepared(Options::default()).await;
    let mut variables = system.variables.clone();
    for name in ["WEBHOOKS__DATABASE__URL", "WEBHOOKS__BROKER__URL"] {
        let elsewhere = variables[name].replace("127.0.0.1", ELSEWHERE);
        variables.insert(name.to_owned(), elsewhere);
    }
    variables.insert("WEBHOOKS__TRACES__ENDPOINT".to_owned(), format!("http://{ELSEWHERE}:1"));
    let tenant = Uuid::new_v4().to_string();
    for (arguments, setting) in [
        (vec!["session", "create", "--tenant", &tenant], "database.url (WEBHOOKS__DATABASE__URL)"),
        (vec!["rejected", "list"], "broker.url (WEBHOOKS__BROKER__URL)"),
        (vec!["doctor"], "traces.endpoint (WEBHOOKS__TRACES__ENDPOINT)"),
    ] {
        let Ran { code, out, err } = webhookctl(&variables, &arguments).await;
        assert!(code < 2 && !out.contains("webhookctl: warning"), "{arguments:?}: {out}{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains("webhookctl: warning: ") && err.contains(setting), "{err}");
    }
}
