//! `webhookctl listen` and `webhookctl publish`, as developers on both ends run them.
use std::{
    collections::HashMap,
    convert::Infallible,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use domain::EventType;
use end_to_end::{
    commands::{self, Ran, run},
    events::Event,
    processes::{free_address, peak_memory},
    receiver::{Receiver, always, verify},
    system::{Options, System, TestSystem},
    wait::SOON,
};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use uuid::Uuid;

/// A running `webhookctl listen`.
struct Listening {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All lines so far.
    shown: Vec<String>,
    url: String,
}

fn command(system: &System, arguments: &[&str]) -> Command {
    commands::command("webhookctl", &system.variables, arguments)
}

/// The folder with the authority that the system's dispatchers trust.
fn authority(system: &System) -> String {
    Path::new(&system.variables["WEBHOOKS__EGRESS__EXTRA_CA_FILE"]).parent().unwrap().display().to_string()
}

/// A run that listens at an address and registers a webhook for a tenant.
async fn registering(system: &System, tenant: Uuid, listen: &str, arguments: &[&str]) -> Command {
    let (api, tenant) = (format!("http://{}", system.anonymous().await.address), tenant.to_string());
    let register = ["listen", "--listen", listen, "--register", "--tenant", &tenant, "--api", &api];
    command(system, &[&register[..], &["--authority", &authority(system)], arguments].concat())
}

impl Listening {
    async fn start(system: &System, arguments: &[&str]) -> Self {
        let folder = authority(system);
        let arguments = [&["listen", "--listen", "127.0.0.1:0", "--authority", &folder], arguments].concat();
        Self::spawn(command(system, &arguments)).await
    }

    async fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut listening = Self { child, lines, shown: Vec::new(), url: String::new() };
        let first = listening.line("listening on ").await;
        listening.url = first.split_whitespace().nth(2).unwrap().trim_end_matches(',').to_owned();
        listening
    }

    /// Registers a webhook for a tenant.
    async fn registered(system: &System, tenant: Uuid, arguments: &[&str]) -> Self {
        Self::registered_by(registering(system, tenant, "127.0.0.1:0", arguments).await).await
    }

    async fn registered_by(command: Command) -> Self {
        let mut listening = Self::spawn(command).await;
        listening.line("registered webhook ").await;
        listening
    }

    /// The next line with this text.
    async fn line(&mut self, part: &str) -> String {
        let found = timeout(SOON, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.shown.push(line.clone());
                if line.contains(part) {
                    return line;
                }
            }
            let mut errors = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
            panic!("it ended: {errors}")
        });
        match found.await {
            Ok(line) => line,
            Err(_) => panic!("{part:?} does not come: {:#?}", self.shown),
        }
    }

    /// Presses Ctrl-C and returns how it ends, and what it says to the end.
    async fn interrupt(self) -> (ExitStatus, String) {
        self.end("-INT").await
    }

    /// The same by any signal.
    async fn end(mut self, signal: &str) -> (ExitStatus, String) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        let mut rest = String::new();
        timeout(SOON, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                rest += &(line + "\n");
            }
        })
        .await
        .unwrap();
        (timeout(SOON, self.child.wait()).await.unwrap().unwrap(), rest)
    }
}

/// Runs `webhookctl publish`. Returns its exit code, and what it says.
async fn publish(system: &System, arguments: &[&str]) -> (Option<i32>, String) {
    let Ran { code, out, err } = run(command(system, &[&["publish"], arguments].concat())).await;
    (Some(code), out + &err)
}

async fn published(system: &System, arguments: &[&str]) -> String {
    let (code, said) = publish(system, arguments).await;
    assert_eq!(code, Some(0), "{said}");
    said
}

async fn webhooks(system: &System, tenant: Uuid) -> Vec<Value> {
    system.admin(tenant).await.get("/api/v1/webhooks/").await.json()["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_delivery_stands_verified_on_the_screen_and_ctrl_c_removes_the_webhook() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let events = ["--events", "quote.closed,quote.accepted", "--status", "503", "--for", "1"];
    let mut listening = Listening::registered(&system, tenant, &events).await;
    let registered = webhooks(&system, tenant).await;
    assert_eq!(registered.len(), 1);
    assert_eq!(registered[0]["events"], json!(["quote.closed", "quote.accepted"]));
    assert_eq!(registered[0]["url"], listening.url);

    let said = published(&system, &["quote.closed", "--tenant", &tenant.to_string()]).await;
    assert!(said.starts_with("the broker has confirmed quote.closed "), "{said}");
    for (attempt, answer) in [("attempt 1", "→ 503 after "), ("attempt 2", "→ 200 after ")] {
        let head = listening.line(attempt).await;
        assert!(head.contains("quote.closed"), "{head}");
        assert_eq!(listening.line("X-Service-Signature").await, "  ✓ X-Service-Signature");
        assert_eq!(listening.line("webhook-signature").await, "  ✓ webhook-signature");
        listening.line(&format!("\"tenant_id\": \"{tenant}\"")).await;
        listening.line(answer).await;
    }

    let (status, rest) = listening.interrupt().await;
    assert!(status.success(), "{rest}");
    assert!(rest.contains("removed the webhook") && rest.contains("2 deliveries received, 2 with"), "{rest}");
    assert_eq!(webhooks(&system, tenant).await, Vec::<Value>::new());
    let sessions =
        format!("SELECT count(*) FROM admin_sessions WHERE user_id = 'webhookctl listen' AND tenant_id = '{tenant}'");
    assert_eq!(system.count(&sessions).await, 0, "its sessions are revoked");
}

/// An indentation of each line by its depth would make 68 MB of this body of 12 KB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_nested_deep_is_shown_as_it_came() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let mut listening = Listening::registered(&system, tenant, &["--full"]).await;
    let pid = listening.child.id().unwrap();
    published(&system, &["quote.closed", "--tenant", &tenant.to_string()]).await;
    listening.line("→ 200 after ").await;
    let before = peak_memory(pid);
    let nested = format!("{}{}", "[".repeat(5_850), "]".repeat(5_850));
    let deep = Event::now(EventType::QuoteClosed, tenant).with_data(format!("{{\"a\":{nested}}}"));
    system.upstream.publish(&[deep]).await;
    listening.line(&nested).await;
    listening.line("→ 200 after ").await;
    let grown = peak_memory(pid) - before;
    assert!(grown < 20 * 1024 * 1024, "{grown} bytes");
    assert!(listening.interrupt().await.0.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_terminal_and_a_termination_remove_the_webhook_too() {
    let system = TestSystem::shared().await;
    for signal in ["-HUP", "-TERM"] {
        let tenant = Uuid::new_v4();
        let mut command = registering(&system, tenant, "127.0.0.1:0", &["--delay", "1h"]).await;
        // The receivers that we hand out read it: it may be set in a developer's shell.
        command.env("SIGNING_SECRET", "whsec_of_another_webhook");
        let mut listening = Listening::registered_by(command).await;
        published(&system, &["quote.closed", "--tenant", &tenant.to_string()]).await;
        assert_eq!(listening.line("X-Service-Signature").await, "  ✓ X-Service-Signature");

        let (status, rest) = listening.end(signal).await;
        assert!(status.success() && rest.contains("→ no answer: this run ended after "), "{signal}: {rest}");
        assert_eq!(webhooks(&system, tenant).await, Vec::<Value>::new(), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_run_has_left_is_removed_by_the_next_one_and_nothing_else() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let other = system.admin(tenant).await.create("https://localhost:1/", &["quote.closed"]).await;
    // A port that no outgoing connection takes meanwhile.
    let address = free_address().to_string();
    let mut killed = Listening::registered_by(registering(&system, tenant, &address, &[]).await).await;
    killed.child.kill().await.unwrap();
    assert_eq!(webhooks(&system, tenant).await.len(), 2);

    let mut again = Listening::spawn(registering(&system, tenant, &address, &[]).await).await;
    again.line("left by an earlier run").await;
    again.line("registered webhook ").await;
    assert_eq!(webhooks(&system, tenant).await.len(), 2);

    assert!(again.interrupt().await.0.success());
    let left = webhooks(&system, tenant).await;
    assert_eq!(left.iter().map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), [other.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_secret_a_slow_answer_and_no_delivery_are_told() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let wrong = format!("whsec_{}", "0123456789abcdef".repeat(4));
    let mut listening = Listening::start(&system, &["--secret", &wrong, "--delay", "1m"]).await;
    let webhook = system.admin(tenant).await.create(&listening.url, &["quote.closed"]).await;
    published(&system, &["quote.closed", "--tenant", &tenant.to_string()]).await;

    let fault = "the signature does not match: the secret is another one, or the body was changed";
    assert_eq!(listening.line("X-Service-Signature").await, format!("  ✗ X-Service-Signature: {fault}"));
    assert_eq!(listening.line("webhook-signature").await, format!("  ✗ webhook-signature: {fault}"));
    let hung_up = listening.line("no answer").await;
    assert!(hung_up.contains("the service closed the connection after "), "{hung_up}");
    assert!(listening.interrupt().await.0.success());

    let mut checked = Listening::start(&system, &["--secret", &webhook.secret]).await;
    system.admin(tenant).await.patch(&format!("/api/v1/webhooks/{}/", webhook.id), &json!({"url": checked.url})).await;
    assert_eq!(checked.line("X-Service-Signature").await, "  ✓ X-Service-Signature");
    assert!(connect_trusting_nobody(&checked.url).await.is_err());
    checked.line("no TLS with 127.0.0.1").await;
    let port = checked.url.trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    let mut plain = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
    plain.write_all(b"POST / HTTP/1.1\r\n\r\n").await.unwrap();
    checked.line("the client does not speak TLS: the URL must begin with https://").await;
}

async fn connect_trusting_nobody(url: &str) -> std::io::Result<()> {
    let port: u16 = url.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map(drop)
}

/// A developer's program: remembers what it gets, and answers 422 with this body.
async fn program(body: &'static str) -> (String, Arc<Mutex<Vec<(Request<()>, Bytes)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks?a=1", listener.local_addr().unwrap());
    let got = Arc::<Mutex<Vec<_>>>::default();
    let list = Arc::clone(&got);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let list = Arc::clone(&list);
            let service = service_fn(move |request: Request<Incoming>| {
                let list = Arc::clone(&list);
                async move {
                    let (head, got) = request.into_parts();
                    let got = got.collect().await.unwrap().to_bytes();
                    list.lock().push((Request::from_parts(head, ()), got));
                    let answer = Response::builder().status(422).header("x-program", "mine");
                    Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, got)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_forwarded_as_it_came_and_the_programs_answer_goes_back() {
    let system = TestSystem::shared().await;
    let (tenant, (url, got)) = (Uuid::new_v4(), program("unknown quote").await);
    let mut listening = Listening::registered(&system, tenant, &["--forward", &url]).await;
    published(&system, &["quote.accepted", "--tenant", &tenant.to_string()]).await;

    listening.line("→ 422 after ").await;
    let (head, body) = got.lock().remove(0);
    assert_eq!(head.uri().to_string(), "/hooks?a=1");
    assert_eq!(head.headers()["x-service-event"], "quote.accepted");
    let envelope: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(envelope["event_type"], "quote.accepted");
    let admin = system.admin(tenant).await;
    let webhook = webhooks(&system, tenant).await.remove(0);
    let id = head.headers()["x-service-webhook-id"].to_str().unwrap().to_owned();
    let path = format!("/api/v1/webhooks/{}/deliveries/{id}/", webhook["id"].as_str().unwrap());
    let attempt = end_to_end::wait::eventually("the attempt is recorded", SOON, || async {
        admin.get(&path).await.json()["attempt_log"].get(0).cloned()
    })
    .await;
    assert_eq!((&attempt["status"], &attempt["response_body"]), (&json!(422), &json!("unknown quote")));
    assert!(listening.interrupt().await.0.success());

    let (url, _) = program("long ".repeat(20_000).leak()).await;
    let mut long = Listening::registered(&system, tenant, &["--forward", &url]).await;
    published(&system, &["quote.accepted", "--tenant", &tenant.to_string()]).await;
    long.line("→ 422 after ").await;
    assert!(long.interrupt().await.0.success());

    let mut away = Listening::registered(&system, tenant, &["--forward", "http://127.0.0.1:1/"]).await;
    published(&system, &["quote.accepted", "--tenant", &tenant.to_string()]).await;
    let line = away.line("→ 502 after ").await;
    assert!(line.contains("--forward: the request failed: ") && line.contains("refused"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elsewhere_an_authority_is_made_and_the_settings_that_it_needs_are_printed() {
    let system = TestSystem::shared().await;
    let folder = Path::new(&authority(&system)).join("new/one");
    let folder_text = folder.display().to_string();
    let arguments = ["listen", "--listen", "127.0.0.1:0", "--authority", &folder_text];
    let mut elsewhere = command(&system, &arguments);
    elsewhere.env_remove("WEBHOOKS__EGRESS__ALLOWED_NETWORKS");
    let mut listening = Listening::spawn(elsewhere).await;
    let setting = listening.line("EXTRA_CA_FILE").await;
    let file = folder.join("authority.pem").canonicalize().unwrap();
    assert_eq!(setting, format!("  the dispatchers need WEBHOOKS__EGRESS__EXTRA_CA_FILE={}", file.display()));
    listening.line("WEBHOOKS__EGRESS__ALLOWED_NETWORKS=127.0.0.0/8,::1/128").await;
    listening.line("signatures are not verified").await;
    assert!(listening.interrupt().await.0.success());
    let made = std::fs::read(&file).unwrap();

    let mut again = command(&system, &arguments);
    again.env("WEBHOOKS__EGRESS__EXTRA_CA_FILE", &file);
    let mut listening = Listening::spawn(again).await;
    listening.line("signatures are not verified").await;
    assert!(!listening.shown.iter().any(|line| line.contains("the dispatchers need")), "{:?}", listening.shown);
    assert_eq!(std::fs::read(&file).unwrap(), made, "the authority stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_secret_it_needs_no_settings_of_the_service() {
    let system = TestSystem::shared().await;
    let (folder, secret) = (authority(&system), format!("whsec_{}", "0123456789abcdef".repeat(4)));
    let listen = |arguments: &[&str]| {
        let listen = ["listen", "--listen", "127.0.0.1:0", "--authority", &folder];
        commands::command("webhookctl", &HashMap::new(), &[&listen, arguments].concat())
    };
    let listening = Listening::spawn(listen(&["--secret", &secret])).await;
    assert!(listening.interrupt().await.0.success());

    let tenant = Uuid::new_v4().to_string();
    let Ran { code, err, .. } = run(listen(&["--register", "--tenant", &tenant])).await;
    assert!(code == 2 && err.contains("are not set"), "{err}");
}

/// A file with this text, in the system's own folder.
fn file(system: &System, name: &str, text: &str) -> String {
    let path: PathBuf = Path::new(&authority(system)).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_file_arrives_byte_for_byte_and_gaps_are_filled() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["stock_receipt.completed"]).await;
    let data = r#"{"total":1.10, "n":123456789012345678901234567890}"#;
    let draft =
        file(&system, "draft.json", &format!("{{\"event_type\":\"stock_receipt.completed\",\"data\":{data}}}\n"));
    published(&system, &["--file", &draft, "--tenant", &tenant.to_string()]).await;
    let whole = published(&system, &["--file", &draft, "--tenant", &tenant.to_string(), "--dry-run"]).await;
    let event: Value = serde_json::from_str(&whole).unwrap();
    let whole = file(&system, "whole.json", &whole);
    for _ in 0..2 {
        let said = published(&system, &["--file", &whole]).await;
        assert!(said.contains(event["event_id"].as_str().unwrap()), "{said}");
    }
    published(&system, &["stock_receipt.completed", "--tenant", &tenant.to_string(), "--count", "30", "--rate", "500"])
        .await;

    let received = receiver.wait_for(32, SOON).await;
    for one in &received {
        verify(one, &webhook.secret).unwrap();
    }
    let as_given = received.iter().filter(|one| String::from_utf8_lossy(&one.body).contains(data)).count();
    assert_eq!(as_given, 2, "the same event twice makes one delivery");
    let stored = format!("SELECT count(*) FROM events WHERE tenant_id = '{tenant}'");
    assert_eq!(system.count(&stored).await, 32);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_published_is_told_and_nothing_is_published() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4().to_string();
    let with = |members: &str| format!("{{\"event_type\":\"quote.closed\",{members}\"data\":{{}}}}");
    let bad = [
        ("not JSON".to_owned(), "not a JSON object"),
        ("[]".to_owned(), "not a JSON object"),
        ("{}".to_owned(), "\"data\" is a required property"),
        (with("\"event_id\":\"7\","), "event_id: \"7\" is not a \"uuid\""),
        (with("\"tenant_id\":7,"), "tenant_id: 7 is not of type \"string\""),
        (with("\"timestamp\":\"yesterday\","), "timestamp: \"yesterday\" is not a \"date-time\""),
        (with("\"timestamp\":\"2020-01-01T00:00:00Z\","), "retention.keep"),
        (with("").replace("quote.closed", "quote.reopened"), "event_type: \"quote.reopened\" is not one of"),
        (with("\"data\":{},"), "duplicate field `data`"),
    ];
    for (text, fault) in bad {
        let path = file(&system, "bad.json", &text);
        let (code, said) = publish(&system, &["--file", &path, "--tenant", &tenant]).await;
        assert!(code == Some(1) && said.contains(fault), "{text}: {said}");
    }
    for (arguments, fault) in [
        (vec!["quote.closed"], "--tenant"),
        (vec!["--file", "/nowhere.json", "--tenant", &tenant], "--file /nowhere.json: cannot be read"),
    ] {
        let (code, said) = publish(&system, &arguments).await;
        assert!(code == Some(2) && said.contains(fault), "{arguments:?}: {said}");
    }
    let mut away = command(&system, &["publish", "quote.closed", "--tenant", &tenant]);
    away.env("WEBHOOKS__BROKER__URL", "amqp://127.0.0.1:1").env("WEBHOOKS__BROKER__CONFIRM_TIMEOUT", "1s");
    let output = timeout(SOON, away.output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("Connection refused"), "{said}");
    published(&system, &["quote.closed", "--tenant", &tenant]).await;
    assert_eq!(system.upstream.ready(&system.names.events()).await, 1, "only the good one is there");
}
