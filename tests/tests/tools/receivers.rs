//! The receivers' code that we hand out (`proto-schemas/receivers`), against real deliveries of the real dispatcher. A
//! program gets a delivery as a proxy that ends TLS hands it on.

#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../../proto-schemas/receivers/receiver.rs"]
mod rust;
#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../../proto-schemas/receivers/receiver_standard.rs"]
mod rust_standard;

use std::{
    ffi::OsStr,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use bytes::Bytes;
use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    processes::free_address,
    receiver::{Received, Receiver, always},
    servers::repository,
    system::{System, TestSystem},
    tools::Tool,
    wait::{SOON, eventually},
};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    process::{Child, Command},
};
use uuid::Uuid;

use crate::samples::{Folder, libraries};

/// Which signature a receiver verifies.
#[derive(Clone, Copy)]
enum Signature {
    Service,
    Standard,
}

/// What a receiver is handed.
#[derive(Clone)]
struct Post {
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Post {
    fn of(received: &Received) -> Self {
        let own = |name: &str| name.starts_with("x-service-") || name.starts_with("webhook-") || name == "content-type";
        let headers = received.headers.iter().filter(|(name, _)| own(name)).cloned().collect();
        Self { headers, body: received.body.clone() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(have, _)| have == name).map_or("", |(_, value)| value)
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let mut changed = self.clone();
        for (_, old) in changed.headers.iter_mut().filter(|(have, _)| have == name) {
            value.clone_into(old);
        }
        assert!(changed.headers != self.headers, "{name} is changed");
        changed
    }

    fn without(&self, name: &str) -> Self {
        let headers = self.headers.iter().filter(|(have, _)| have != name).cloned().collect();
        Self { headers, body: self.body.clone() }
    }
}

/// More than the 300 seconds that are permitted.
const TOO_FAR: i64 = 310;

/// A time that many seconds later.
fn shifted(unix_seconds: &str, by: i64) -> String {
    (unix_seconds.parse::<i64>().expect("it is whole seconds") + by).to_string()
}

/// A secret of the right form, of no webhook.
fn wrong_secret() -> String {
    format!("whsec_{}", "0123456789abcdef".repeat(4))
}

/// What a receiver must refuse, and why.
fn bad(post: &Post, signature: Signature) -> Vec<(&'static str, Post)> {
    let body: Vec<u8> = [&post.body[..post.body.len() - 1], b" }"].concat();
    let mut bad = vec![("an altered body", Post { body: body.into(), ..post.clone() })];
    match signature {
        Signature::Service => {
            let parts = post.header("x-service-signature").strip_prefix("t=").and_then(|rest| rest.split_once(','));
            let (time, digest) = parts.expect("the header is t=…,v1=…");
            let old = shifted(time, -TOO_FAR);
            let signed = |header: &str| post.with("x-service-signature", header);
            bad.push(("an old t", signed(&format!("t={old},{digest}"))));
            bad.push(("a t to come", signed(&format!("t={},{digest}", shifted(time, TOO_FAR)))));
            bad.push(("two t", signed(&format!("t={time},t={time},{digest}"))));
            bad.push(("a t of 5,000 digits", signed(&format!("t={},{digest}", "1".repeat(5_000)))));
            bad.push(("no t", signed(digest)));
            bad.push(("no digest", signed(&format!("t={time}"))));
            bad.push(("garbage", signed("t,v1,=,,v1")));
            bad.push(("no signature", post.without("x-service-signature")));
            bad.push(("no id", post.without("x-service-webhook-id")));
        }
        Signature::Standard => {
            let old = shifted(post.header("webhook-timestamp"), -TOO_FAR);
            let to_come = shifted(post.header("webhook-timestamp"), TOO_FAR);
            bad.push(("an old time", post.with("webhook-timestamp", &old)));
            bad.push(("a time to come", post.with("webhook-timestamp", &to_come)));
            bad.push(("garbage", post.with("webhook-signature", "v1,abc v1")));
            bad.push(("another id", post.with("webhook-id", &Uuid::new_v4().to_string())));
            bad.push(("no signature", post.without("webhook-signature")));
        }
    }
    bad
}

/// Makes a real delivery. Returns it with the webhook's secret.
async fn delivery(system: &System) -> (Post, String) {
    delivery_of(system, r#"{"client":"Ørsted","total":1.10}"#).await
}

/// Makes a real delivery of this data.
async fn delivery_of(system: &System, data: &str) -> (Post, String) {
    let receiver = Receiver::start(&system.ca, always(200));
    let event = Event::now(EventType::QuoteAccepted, Uuid::new_v4()).with_data(data);
    let webhook = system.admin(event.tenant).await.create(&receiver.url("/hook"), &["quote.accepted"]).await;
    system.upstream.publish(&[event]).await;
    (Post::of(&receiver.wait_for(1, SOON).await[0]), webhook.secret)
}

/// A program of `proto-schemas/receivers`.
struct Program {
    file: &'static str,
    signature: Signature,
    tool: Tool,
    /// What its author replaces by own code, and code that fails.
    process: (&'static str, &'static str),
    start: fn(&Path, u16) -> Command,
}

fn programs() -> Vec<Program> {
    let python = (r#"print("processed", len(body), "bytes", flush=True)"#, r#"raise RuntimeError("out of order")"#);
    let node = (r#"console.log("processed", body.length, "bytes")"#, r#"throw new Error("out of order")"#);
    let with = |file, signature, tool, process, start| Program { file, signature, tool, process, start };
    vec![
        with("receiver.py", Signature::Service, Tool::Python, python, |file, _| run("python3", file)),
        with("receiver.mjs", Signature::Service, Tool::Node, node, |file, _| run("node", file)),
        with(
            "receiver.go",
            Signature::Service,
            Tool::Go,
            ("return nil\n}\n\n// Checks", "return errors.New(\"out of order\")\n}\n\n// Checks"),
            |file, _| Command::new(file.with_extension("")),
        ),
        with(
            "receiver.php",
            Signature::Service,
            Tool::Php,
            ("error_log('processed ' . strlen($body) . ' bytes')", "throw new RuntimeException('out of order')"),
            |file, port| {
                let mut php = Command::new("php");
                php.args(["-S", &format!("127.0.0.1:{port}")]).arg(file);
                php
            },
        ),
        with("receiver_standard.py", Signature::Standard, Tool::Python, python, |file, _| {
            run(libraries().join("venv/bin/python"), file)
        }),
        with("receiver_standard.mjs", Signature::Standard, Tool::Node, node, |file, _| run("node", file)),
    ]
}

fn run(program: impl AsRef<OsStr>, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(file);
    command
}

impl Program {
    /// Copies the program into a folder, and one of the same whose processing fails. Builds what has to be built.
    fn copy_to(&self, folder: &Folder) -> [PathBuf; 2] {
        let source = repository().join("proto-schemas/receivers").join(self.file);
        let text = std::fs::read_to_string(source).expect("the file is there");
        let (process, failing) = self.process;
        assert_eq!(text.matches(process).count(), 1, "{}: {process}", self.file);
        let broken = text.replace(process, failing);
        [(format!("good_{}", self.file), text), (format!("broken_{}", self.file), broken)].map(|(name, text)| {
            let file = folder.0.join(name);
            std::fs::write(&file, text).expect("the folder takes it");
            if file.extension() == Some(OsStr::new("go")) {
                let mut go = std::process::Command::new("go");
                go.env("CGO_ENABLED", "0").args(["build", "-o"]).arg(file.with_extension("")).arg(&file);
                assert!(go.status().is_ok_and(|status| status.success()), "go builds it");
            }
            file
        })
    }
}

/// A program that runs, until it is dropped.
struct Running {
    api: Api,
    _child: Child,
}

impl Running {
    async fn start(program: &Program, file: &Path, secret: &str) -> Self {
        Self::start_with(program, file, secret, &file.with_extension(Uuid::new_v4().to_string())).await
    }

    /// Starts a program that keeps the ids of what is processed in a folder, if it is PHP.
    async fn start_with(program: &Program, file: &Path, secret: &str, seen: &Path) -> Self {
        let address = free_address();
        let mut command = (program.start)(file, address.port());
        command.env("PORT", address.port().to_string()).env("SIGNING_SECRET", secret).env("SEEN", seen);
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.file).with_extension("log");
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("it can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        eventually(&format!("{} listens", program.file), SOON, || {
            assert!(matches!(child.try_wait(), Ok(None)), "{} has ended: {}", program.file, log.display());
            async move { TcpStream::connect(address).await.ok() }
        })
        .await;
        Self { api: Api { address, session: None }, _child: child }
    }

    /// Begins a request and hangs up.
    async fn hang_up(&self) {
        let mut stream = TcpStream::connect(self.api.address).await.expect("it listens");
        let begun = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc";
        stream.write_all(begun).await.expect("it reads");
    }

    async fn answer(&self, post: &Post) -> (u16, String) {
        let headers: Vec<_> = post.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = self.api.send("POST", "/hooks", &headers, post.body.clone()).await;
        (answer.status, answer.text.trim().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_takes_a_real_delivery_once_and_refuses_what_is_not_one() {
    let system = TestSystem::shared().await;
    let there: Vec<_> = programs().into_iter().filter(|program| program.tool.is_used()).collect();
    let folder = Folder::below(&libraries(), &[]);
    // Before the delivery is made: what is signed must not wait for a compiler.
    let files: Vec<_> = there.iter().map(|program| program.copy_to(&folder)).collect();
    let (good, secret) = delivery(&system).await;
    let received = (200, "received".to_owned());
    for (program, [file, broken]) in there.iter().zip(files) {
        let name = program.file;
        let receiver = Running::start(program, &file, &secret).await;
        receiver.hang_up().await;
        for (what, post) in bad(&good, program.signature) {
            assert_eq!(receiver.answer(&post).await.0, 400, "{name}: {what}");
        }
        assert_eq!(receiver.answer(&good).await, received, "{name}");
        assert_eq!(receiver.answer(&good).await, (200, "seen before".to_owned()), "{name}");

        let wrong = Running::start(program, &file, &wrong_secret()).await;
        assert_eq!(wrong.answer(&good).await.0, 400, "{name}: a wrong secret");
        let broken = Running::start(program, &broken, &secret).await;
        for _ in 0..2 {
            assert_eq!(broken.answer(&good).await.0, 500, "{name}: its processing fails, so it has to come again");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_answers_a_delivery_that_is_nested_deep() {
    let system = TestSystem::shared().await;
    let (deep, secret) =
        delivery_of(&system, &format!("{{\"by\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000))).await;
    let folder = Folder::below(&libraries(), &[]);
    for program in programs().into_iter().filter(|program| program.tool.is_used()) {
        let [file, _] = program.copy_to(&folder);
        let receiver = Running::start(&program, &file, &secret).await;
        // The library of Standard Webhooks reads the body, in Python by a recursion.
        let expected = if program.file == "receiver_standard.py" { 400 } else { 200 };
        assert_eq!(receiver.answer(&deep).await.0, expected, "{}", program.file);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_in_php_trusts_no_folder_that_others_can_write_to() {
    let system = TestSystem::shared().await;
    let programs = programs().into_iter().filter(|program| program.tool.is_used());
    let folder = Folder::below(&libraries(), &[]);
    for program in programs.filter(|program| program.file == "receiver.php") {
        let [file, _] = program.copy_to(&folder);
        let (good, secret) = delivery(&system).await;
        let open = folder.0.join("seen");
        std::fs::create_dir(&open).unwrap();
        for (seen, mode, status) in [(Path::new(""), 0o777, 500), (&open, 0o777, 500), (&open, 0o700, 200)] {
            std::fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            let receiver = Running::start_with(&program, &file, &secret, seen).await;
            assert_eq!(receiver.answer(&good).await.0, status, "{seen:?} {mode:o}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receivers_in_rust_do_the_same() {
    let system = TestSystem::shared().await;
    let (good, secret) = delivery(&system).await;
    let wrong = wrong_secret();
    let now = || time::OffsetDateTime::now_utc().unix_timestamp();
    let service = |receiver: &mut rust::Receiver, post: &Post, processed: Result<(), ()>| {
        let headers = (post.header("x-service-signature"), post.header("x-service-webhook-id"));
        receiver.receive(headers, &post.body, now(), |_| processed)
    };
    let standard = |receiver: &mut rust_standard::Receiver, post: &Post, processed: Result<(), ()>| {
        let headers = post.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        receiver.receive(&headers.collect(), &post.body, |_| processed)
    };
    let mut own = rust::Receiver::new(&secret);
    assert_receives(&good, Signature::Service, |post, processed| service(&mut own, post, processed));
    assert_eq!(service(&mut rust::Receiver::new(&wrong), &good, Ok(())).0, 400);
    let mut own = rust_standard::Receiver::new(&secret).unwrap();
    assert_receives(&good, Signature::Standard, |post, processed| standard(&mut own, post, processed));
    assert_eq!(standard(&mut rust_standard::Receiver::new(&wrong).unwrap(), &good, Ok(())).0, 400);
}

/// Asserts that a receiver takes a delivery once, and refuses what is not one.
fn assert_receives(good: &Post, signature: Signature, mut receive: impl FnMut(&Post, Result<(), ()>) -> (u16, String)) {
    for (what, post) in bad(good, signature) {
        assert_eq!(receive(&post, Ok(())).0, 400, "{what}");
    }
    assert_eq!(receive(good, Err(())).0, 500, "it comes again");
    assert_eq!(receive(good, Ok(())), (200, "received".to_owned()));
    assert_eq!(receive(good, Ok(())), (200, "seen before".to_owned()));
}
