//! Passwords that are changed at the servers and in their files while the services run.

use std::{fs, path::PathBuf};

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    outsider::sql,
    processes::{Process, with_api_address},
    receiver::always,
    servers::PrivateServers,
    system::{Options, Subscriber, TestSystem, metric, wait_ready},
    wait::{SOON, eventually_ok},
};
use futures_util::future::join_all;

use crate::startup::ALL;

const USER: &str = "rotating";
const FIRST: &str = "correct-horse-1";
const SECOND: &str = "correct-horse-2";

/// The same URL with a user and without a password.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, host) = rest.split_once('@').unwrap();
    format!("{scheme}://{USER}@{host}")
}

/// Waits until `/readyz` says of the database and of the broker what is expected.
async fn says(process: &Process, expected: [&str; 2]) {
    let ops = Api { address: process.ops, session: None };
    eventually_ok(SOON, || async {
        let checks = ops.get("/readyz").await.json()["checks"].clone();
        let says = |check: &str, words: &str| checks[check].as_str().is_some_and(|fault| fault.contains(words));
        if says("database", expected[0]) && says("broker", expected[1]) { Ok(()) } else { Err(checks.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_that_are_changed_at_the_servers_and_in_their_files_need_no_restart() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::prepared(servers.options(Options::default())).await;
    let admin_url = &servers.servers().database_url;
    sql(admin_url, &format!("CREATE ROLE {USER} LOGIN PASSWORD '{FIRST}' IN ROLE webhooks")).await;
    servers.rabbitmqctl(&["add_user", USER, FIRST]);
    servers.rabbitmqctl(&["set_permissions", "-p", "/", USER, ".*", ".*", ".*"]);
    // As an operator restricts the service: to the seven routing keys.
    let (exchange, keys) = (system.names.events_exchange.as_str(), EventType::ALL.map(EventType::as_str).join("|"));
    servers.rabbitmqctl(&["set_topic_permissions", USER, exchange, ".*", &format!("^({})$", keys.replace('.', "\\."))]);
    let folder = PathBuf::from(&system.variables["WEBHOOKS__EGRESS__EXTRA_CA_FILE"]).parent().unwrap().to_owned();
    let [database, broker] = ["database", "broker"].map(|server| folder.join(format!("{server}-password")));
    let write = |password: &str| {
        [&database, &broker].iter().for_each(|file| fs::write(file, format!("{password}\n")).unwrap());
    };
    let cut = async || {
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'");
        sql(admin_url, &cut).await;
        servers.rabbitmqctl(&["close_all_user_connections", USER, "a test"]);
    };
    write(FIRST);
    let mut variables = with_api_address(&system).await;
    for (name, value) in [
        ("DATABASE__URL", without_password(&system.database_url)),
        ("DATABASE__PASSWORD_FILE", database.display().to_string()),
        ("BROKER__URL", without_password(&system.amqp_url)),
        ("BROKER__PASSWORD_FILE", broker.display().to_string()),
    ] {
        variables.insert(format!("WEBHOOKS__{name}"), value);
    }
    let processes = join_all(ALL.map(|name| Process::start(name, &variables))).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
    for process in &processes {
        assert_eq!(metric(process.ops, "webhooks_broker_reconnects_total").await, 0.0, "{}", process.logged());
    }

    sql(admin_url, &format!("ALTER ROLE {USER} PASSWORD '{SECOND}'")).await;
    servers.rabbitmqctl(&["change_password", USER, SECOND]);
    cut().await;
    for process in &processes {
        says(process, ["no connection to the database", "not connected"]).await;
    }
    fs::remove_file(&database).unwrap();
    fs::remove_file(&broker).unwrap();
    for process in &processes {
        let words = [&database, &broker].map(|file| format!("{} cannot be read", file.display()));
        says(process, [&words[0], &words[1]]).await;
    }

    write(SECOND);
    for process in &processes {
        wait_ready(process.ops).await;
    }
    cut().await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(2, SOON).await;
    for process in processes {
        wait_ready(process.ops).await;
        let logged = process.logged();
        assert!(!logged.contains("correct-horse"), "{logged}");
        assert_eq!(process.terminate().await.code(), Some(0));
    }
}
