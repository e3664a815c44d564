//! Tests how the service starts and ends without what it needs. The end-to-end package tests it with a database and a
//! broker.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use api_service::App;
use service_kit::Settings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// The system chooses the ports. There is no database and no broker: nothing listens at port 1.
fn settings(changes: &[(&str, &str)]) -> Settings {
    let keys = format!("test:{}", "0".repeat(64));
    let mut env = HashMap::from([
        ("DATABASE__URL", "postgres://nobody@127.0.0.1:1/none"),
        ("BROKER__URL", "amqp://127.0.0.1:1"),
        ("API__LISTEN", "127.0.0.1:0"),
        ("OPS__LISTEN", "127.0.0.1:0"),
        ("SECRETS__KEYS", &keys),
    ]);
    env.extend(changes.iter().copied());
    let env = env.into_iter().map(|(key, value)| (format!("WEBHOOKS__{key}"), value.to_owned())).collect();
    Settings::from_sources(None, env).unwrap()
}

async fn refusal(changes: &[(&str, &str)]) -> String {
    App::build(&settings(changes)).await.err().expect("it must not start").to_string()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn what_it_cannot_start_with_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (setting, value, named) in [
        ("SECRETS__KEYS", "", "secrets.keys (WEBHOOKS__SECRETS__KEYS)"),
        ("SECRETS__KEYS", "test:sensitive", "secrets.keys (WEBHOOKS__SECRETS__KEYS)"),
        ("DATABASE__URL", "sensitive", "database.url (WEBHOOKS__DATABASE__URL)"),
        ("BROKER__URL", "sensitive", "broker.url (WEBHOOKS__BROKER__URL)"),
        ("API__SESSIONS", "introspection", "api.introspection_url (WEBHOOKS__API__INTROSPECTION_URL) is not set"),
        ("CONSOLE__LOGIN_URL", "https://app.example.com/", "console.login_url (WEBHOOKS__CONSOLE__LOGIN_URL)"),
    ] {
        let said = refusal(&[(setting, value)]).await;
        assert!(said.starts_with(named) && !said.contains("sensitive"), "{said}");
    }
    for (setting, named) in
        [("API__LISTEN", "api.listen (WEBHOOKS__API__LISTEN)"), ("OPS__LISTEN", "ops.listen (WEBHOOKS__OPS__LISTEN)")]
    {
        let said = refusal(&[(setting, &taken)]).await;
        assert!(said.starts_with(&format!("{named}: cannot listen on {taken}: Address already in use")), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_servers_it_is_alive_but_not_ready_and_ends_when_it_is_told() {
    let app = App::build(&settings(&[])).await.unwrap();
    let (api, ops) = (app.address(), app.ops_address());
    assert!(api.port() != 0 && ops.port() != 0);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(app.run(shutdown.clone()));
    assert!(get(ops, "/healthz").await.starts_with("HTTP/1.1 200"));
    let ready = get(ops, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains(r#""broker":"not connected""#) && ready.contains(r#""database":"no connection"#), "{ready}");
    assert!(get(ops, "/metrics").await.contains("webhooks_broker_reconnects_total"));
    shutdown.cancel();
    timeout(Duration::from_secs(10), running).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(api).await.is_err() && TcpStream::connect(ops).await.is_err());
}
