//! TLS to the database and to the broker, with real servers and real certificates.

use std::{error::Error, fs, time::Duration};

use broker::{Broker, BrokerConfig, Names};
use end_to_end::{
    api::Api,
    events::Event,
    outsider::sql,
    processes::{Process, with_api_address},
    receiver::{TestCa, Validity, always},
    system::{Options, Subscriber, TestSystem, wait_ready},
    wait::{SOON, until},
};
use ledger::{Ledger, LedgerConfig};
use service_kit::Settings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::startup::{ALL, tls_servers::TlsServers, waiting::logs};

fn with_causes(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

/// The settings of a service: the URL of the database or of the broker, and files of TLS for it.
fn settings(section: &str, url: &str, files: &[(&str, String)]) -> Settings {
    let mut variables = std::collections::HashMap::from([
        ("WEBHOOKS__DATABASE__URL".to_owned(), "postgres://localhost/none".to_owned()),
        ("WEBHOOKS__BROKER__URL".to_owned(), "amqp://localhost".to_owned()),
    ]);
    let given = [("URL", url.to_owned())].into_iter().chain(files.iter().cloned());
    variables.extend(given.map(|(name, value)| (format!("WEBHOOKS__{section}__{name}"), value)));
    Settings::from_sources(None, variables).unwrap()
}

fn ledger(url: &str, files: &[(&str, String)]) -> Result<Ledger, String> {
    let config = LedgerConfig {
        url: url.to_owned(),
        password_file: None,
        tls: settings("DATABASE", url, files).database.tls_files().unwrap(),
        max_connections: 1,
        application_name: "encrypted",
        call_timeout: Duration::from_secs(10),
    };
    Ledger::new(&config).map_err(|error| with_causes(&error))
}

async fn reaches_database(url: &str) -> Result<(), String> {
    reaches_database_with(url, &[]).await
}

async fn reaches_database_with(url: &str, files: &[(&str, String)]) -> Result<(), String> {
    ledger(url, files)?.clock().await.map(drop).map_err(|error| with_causes(&error))
}

/// The settings of a client with this name.
fn client(pair: &TlsServers, name: &str) -> [(&'static str, String); 2] {
    [("CLIENT_CERTIFICATE", pair.file(&format!("{name}.pem"))), ("CLIENT_KEY", pair.file(&format!("{name}.key")))]
}

/// Makes the certificate of a client whom nobody knows.
fn make_stranger(pair: &TlsServers) {
    let (certificate, key) = TestCa::new().issue(&["client"], Validity::Valid);
    pair.client_file("strange.pem", &certificate);
    pair.client_file("strange.key", &key);
}

/// Asserts that a client certificate is refused. The server judges it after the handshake (TLS 1.3), and closes: its reset may
/// overtake what it says.
fn assert_refused_or_reset(what: &str, outcome: Result<(), String>, words: &[&str]) {
    let said = outcome.expect_err(what);
    let is_reset = ["reset by peer", "Broken pipe", "connection aborted"].iter().any(|reset| said.contains(reset));
    assert!(is_reset || words.iter().all(|word| said.contains(word)), "{what}: {said}");
}

/// Connects as a service does, with these settings of TLS.
async fn reaches_broker(url: &str, files: &[(&str, String)]) -> Result<(), String> {
    let names = Names::new("encrypted", "encrypted.business");
    let config = BrokerConfig {
        uri: url.to_owned(),
        password_file: None,
        tls: settings("BROKER", url, files).broker.tls_files().unwrap(),
        names: names.clone(),
        gaps: Vec::new(),
        confirm_timeout: SOON,
        process: "encrypted",
    };
    let broker = Broker::new(&config).map_err(|error| with_causes(&error))?;
    let reached = broker.depth(&names.dead()).await.map(drop).map_err(|error| with_causes(&error));
    broker.depths_close().await;
    reached
}

fn assert_refused(what: &str, outcome: Result<(), String>, words: &[&str]) {
    let said = outcome.expect_err(what);
    for word in words {
        assert!(said.contains(word), "{what}: {word:?} is missing in: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_is_reached_over_tls_as_its_certificate_and_ours_allow() {
    let pair = TlsServers::borrow().await;
    let plain = &pair.servers.servers().database_url;
    let good = pair.options("authority.pem", "client");
    let url = |hosts: &[&str], options: &str| pair.database(plain, hosts, options);

    let kept = ledger(&url(&["localhost"], &good), &[]).unwrap();
    kept.clock().await.unwrap();
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'encrypted'";
    assert!(sql(plain, encrypted).await[0].get::<_, bool>(0), "the connection is encrypted");
    reaches_database(&url(&["localhost"], &format!("{good}&channel_binding=require"))).await.unwrap();
    reaches_database(&url(&["127.0.0.1", "localhost"], &good)).await.expect("each host's name is verified by itself");
    let password = plain.split(['@', ':']).nth(2).unwrap();
    let port = end_to_end::proxy::target(plain).port();
    let words = format!("user=webhooks password='{password}' dbname=webhooks port={port} {}", good.replace('&', " "));
    reaches_database(&format!("host=localhost {words}")).await.expect("words are as good as a URL");
    reaches_database(&format!("host=localhost hostaddr=127.0.0.1 {words}")).await.expect("the name is verified");

    let name = ["TLS with the database failed", "not valid for the name 127.0.0.1"];
    assert_refused("a wrong name", reaches_database(&url(&["127.0.0.1"], &good)).await, &name);
    let mozilla = good.replace(&pair.file("authority.pem"), "system");
    let unknown = ["TLS with the database failed", "signed by an unknown authority"];
    assert_refused("Mozilla's authorities", reaches_database(&url(&["localhost"], &mozilla)).await, &unknown);
    let stranger = TestCa::new();
    pair.client_file("strange.authority.pem", stranger.pem());
    let strange = pair.options("strange.authority.pem", "client");
    assert_refused("another authority", reaches_database(&url(&["localhost"], &strange)).await, &unknown);
    let nameless = format!("sslmode=require&sslrootcert={}", pair.file("authority.pem"));
    let wanted = ["connection requires a valid client certificate"];
    assert_refused("no certificate", reaches_database(&url(&["localhost"], &nameless)).await, &wanted);
    make_stranger(&pair);
    let strange = pair.options("authority.pem", "strange");
    let refused = ["or one that it does not accept", "UnknownCA"];
    assert_refused("a stranger's", reaches_database(&url(&["localhost"], &strange)).await, &refused);

    pair.show(Validity::Expired).await;
    let expired = ["TLS with the database failed", "certificate expired on 2021-01-01"];
    assert_refused("an expired one", reaches_database(&url(&["localhost"], &good)).await, &expired);
    kept.clock().await.expect("a connection that is open stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_tls_in_the_settings_of_the_database_count_as_those_of_its_url() {
    let pair = TlsServers::borrow().await;
    let plain = &pair.servers.servers().database_url;
    let [localhost, insisting] = ["", "sslmode=verify-full"].map(|mode| pair.database(plain, &["localhost"], mode));
    let authority = ("CA_FILE", pair.file("authority.pem"));
    let [certificate, key] = client(&pair, "client");
    let good = [authority.clone(), certificate.clone(), key.clone()];
    let kept = ledger(&localhost, &good).unwrap();
    kept.clock().await.unwrap();
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'encrypted'";
    assert!(sql(plain, encrypted).await[0].get::<_, bool>(0), "the connection is encrypted");
    reaches_database_with(&insisting, &good).await.unwrap();
    let both = pair.database(plain, &["127.0.0.1", "localhost"], "");
    reaches_database_with(&both, &good).await.expect("the files are for all hosts");

    // Each file counts.
    let unknown = ["TLS with the database failed", "signed by an unknown authority"];
    let public = reaches_database_with(&localhost, &[certificate, key]).await;
    assert_refused("Mozilla's authorities", public, &unknown);
    let wanted = ["connection requires a valid client certificate"];
    let nameless = reaches_database_with(&localhost, &[authority]).await;
    assert_refused("no certificate", nameless, &wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_ours_that_is_replaced_counts_from_the_next_connection_on() {
    let pair = TlsServers::borrow().await;
    let plain = &pair.servers.servers().database_url;
    let [certificate, key] = ["client.pem", "client.key"].map(|name| fs::read_to_string(pair.file(name)).unwrap());
    pair.client_file("moving.pem", &certificate);
    let moving = pair.client_file("moving.key", &key);
    let url = pair.database(plain, &["localhost"], &pair.options("authority.pem", "moving"));
    let ledger = ledger(&url, &[]).unwrap();
    fs::remove_file(&moving).unwrap();
    let said = with_causes(&ledger.clock().await.unwrap_err());
    assert!(said.contains(&format!("{moving} cannot be read")), "{said}");
    pair.client_file("moving.key", &key);
    ledger.clock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_speak_tls_is_not_spoken_to_without() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://webhooks:correct-horse@{}/none?sslmode=require", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = [0; 8];
        stream.read_exact(&mut heard).await.unwrap();
        stream.write_all(b"N").await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        rest
    };
    let both = async { tokio::join!(reaches_database(&url), server) };
    let (outcome, rest) = tokio::time::timeout(SOON, both).await.expect("the connection is given up");
    assert_refused("a server without TLS", outcome, &["server does not support TLS"]);
    assert!(rest.is_empty(), "nothing follows in the clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_is_reached_over_tls_as_its_certificate_and_ours_allow() {
    let pair = TlsServers::borrow().await;
    let authority = ("CA_FILE", pair.file("authority.pem"));
    let [certificate, key] = client(&pair, "client");
    let good = [authority.clone(), certificate.clone(), key.clone()];
    let localhost = pair.broker("localhost");
    reaches_broker(&localhost, &good).await.unwrap();
    let list = format!("{},{localhost}", pair.broker("127.0.0.1"));
    reaches_broker(&list, &good).await.expect("the files are for all addresses");

    let name = ["TLS with the broker failed", "not valid for the name 127.0.0.1"];
    assert_refused("a wrong name", reaches_broker(&pair.broker("127.0.0.1"), &good).await, &name);
    let unknown = ["TLS with the broker failed", "signed by an unknown authority"];
    assert_refused("Mozilla's authorities", reaches_broker(&localhost, &[certificate, key]).await, &unknown);
    let wanted = ["the server wants a client certificate, and got none"];
    assert_refused_or_reset("none", reaches_broker(&localhost, std::slice::from_ref(&authority)).await, &wanted);
    make_stranger(&pair);
    let [certificate, key] = client(&pair, "strange");
    let strange = [authority, certificate, key];
    let refused = ["or one that it does not accept", "UnknownCA"];
    assert_refused_or_reset("a stranger's", reaches_broker(&localhost, &strange).await, &refused);
    let plain_port = pair.servers.servers().amqp_url.replace("amqp://", "amqps://");
    let deaf = ["the server does not speak TLS on this port"];
    assert_refused("a port without TLS", reaches_broker(&plain_port, &good).await, &deaf);

    pair.show(Validity::Expired).await;
    let expired = ["TLS with the broker failed", "certificate expired on 2021-01-01"];
    assert_refused("an expired one", reaches_broker(&localhost, &good).await, &expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_silent_in_the_handshake_leaves_no_threads_behind() {
    let system = TestSystem::prepared(Options::default()).await;
    // Accepted by the system, and by nobody else.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for scheme in ["amqps", "amqp"] {
        let address = format!("{scheme}://{}", silent.local_addr().unwrap());
        let mut variables = system.variables.clone();
        // Each gets a tenth of the time.
        variables.insert("WEBHOOKS__BROKER__URL".to_owned(), vec![address; 10].join(","));
        let process = Process::spawn("dispatcher", &variables);
        logs(&process, 20, &["WARN", "this node of the broker cannot be used"]).await;
        let threads = process.threads("lapin");
        assert!(threads <= 10, "{scheme}: {threads} threads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_whose_servers_certificates_have_expired_say_so_and_deliver_once_they_are_replaced() {
    let pair = TlsServers::borrow().await;
    let options = Options { servers: Some(pair.servers.servers().clone()), ..Options::default() };
    let system = TestSystem::prepared(options).await;
    let mut variables = with_api_address(&system).await;
    for (section, url) in
        [("DATABASE", pair.database(&system.database_url, &["localhost"], "")), ("BROKER", pair.broker("localhost"))]
    {
        let files = [("CA_FILE", pair.file("authority.pem"))].into_iter().chain(client(&pair, "client"));
        let given = files.chain([("URL", url)]);
        variables.extend(given.map(|(name, value)| (format!("WEBHOOKS__{section}__{name}"), value)));
    }
    pair.show(Validity::Expired).await;
    let processes = ALL.map(|name| Process::spawn(name, &variables));
    for process in &processes {
        let expired = "the server's own certificate expired on 2021-01-01";
        for server in ["database", "broker"] {
            logs(process, 2, &["WARN", &format!("TLS with the {server} failed: {expired}")]).await;
        }
        let ops = Api { address: process.ops, session: None };
        until("/readyz says why", SOON, || async {
            let answer = ops.get("/readyz").await;
            let checks = &answer.json()["checks"];
            let says = |check: &str| checks[check].as_str().is_some_and(|fault| fault.contains(expired));
            answer.status == 503 && says("database") && says("broker")
        })
        .await;
    }

    pair.show(Validity::Valid).await;
    for process in &processes {
        wait_ready(process.ops).await;
    }
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
    let in_the_clear = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE datname = current_database() AND NOT ssl \
         AND application_name IN ('api-service', 'event-ingest', 'dispatcher')";
    assert_eq!(system.count(in_the_clear).await, 0);
    for process in processes {
        assert!(!process.logged().contains("is not encrypted"), "{}", process.logged());
        assert_eq!(process.terminate().await.code(), Some(0));
    }
}
