//! The receivers' code that we hand out (`proto-schemas/receivers`), against real deliveries of the real dispatcher. A
//! program gets a delivery as a proxy that ends TLS hands it on.

#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../proto-schemas/receivers/receiver.rs"]
mod rust;
#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../proto-schemas/receivers/receiver_standard.rs"]
mod rust_standard;

use std::{
    ffi::OsStr,
    io::Write,
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
    system::{Options, System},
    wait::{SOON, eventually},
};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// Which signature a receiver verifies.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// A time that is too far from now.
fn earlier(unix_seconds: &str) -> String {
    (unix_seconds.parse::<u64>().expect("it is whole seconds") - 310).to_string()
}

/// What a receiver must refuse, and why.
fn bad(post: &Post, signature: Signature) -> Vec<(&'static str, Post)> {
    let body: Vec<u8> = [&post.body[..post.body.len() - 1], b" }"].concat();
    let mut bad = vec![("an altered body", Post { body: body.into(), ..post.clone() })];
    match signature {
        Signature::Service => {
            let parts = post.header("x-service-signature").strip_prefix("t=").and_then(|rest| rest.split_once(','));
            let (time, digest) = parts.expect("the header is t=…,v1=…");
            let old = earlier(time);
            bad.push(("an old t", post.with("x-service-signature", &format!("t={old},{digest}"))));
            bad.push(("no t", post.with("x-service-signature", digest)));
            bad.push(("no digest", post.with("x-service-signature", &format!("t={time}"))));
            bad.push(("no signature", post.without("x-service-signature")));
        }
        Signature::Standard => {
            let old = earlier(post.header("webhook-timestamp"));
            bad.push(("an old time", post.with("webhook-timestamp", &old)));
            bad.push(("another id", post.with("webhook-id", &Uuid::new_v4().to_string())));
            bad.push(("no signature", post.without("webhook-signature")));
        }
    }
    bad
}

/// Makes a real delivery. Returns it with the webhook's secret.
async fn delivery(system: &System) -> (Post, String) {
    let receiver = Receiver::start(&system.ca, always(200));
    let event = Event::now(EventType::QuoteAccepted, Uuid::new_v4()).with_data(r#"{"client":"Ørsted","total":1.10}"#);
    let webhook = system.admin(event.tenant).await.create(&receiver.url("/hook"), &["quote.accepted"]).await;
    system.upstream.publish(&[event]).await;
    (Post::of(&receiver.wait_for(1, SOON).await[0]), webhook.secret)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where `deploy/local/receivers` put the libraries.
fn libraries() -> PathBuf {
    std::env::var_os("STACK_DIR").map_or_else(|| repository().join(".local"), PathBuf::from).join("receivers")
}

/// A program of `proto-schemas/receivers`.
struct Program {
    file: &'static str,
    signature: Signature,
    /// What it does not run without.
    needs: PathBuf,
    start: fn(&Path, u16) -> Command,
}

fn programs() -> Vec<Program> {
    let (service, standard) = (Signature::Service, Signature::Standard);
    let python = libraries().join("venv/lib");
    let node = libraries().join("node_modules/standardwebhooks");
    vec![
        Program {
            file: "receiver.py",
            signature: service,
            needs: "python3".into(),
            start: |file, _| run("python3", file),
        },
        Program { file: "receiver.mjs", signature: service, needs: "node".into(), start: |file, _| run("node", file) },
        Program {
            file: "receiver.go",
            signature: service,
            needs: "go".into(),
            start: |file, _| run(built(file), Path::new("")),
        },
        Program {
            file: "receiver.php",
            signature: service,
            needs: "php".into(),
            start: |file, port| {
                let mut php = Command::new("php");
                php.args(["-S", &format!("127.0.0.1:{port}")]).arg(file);
                php
            },
        },
        Program {
            file: "receiver_standard.py",
            signature: standard,
            needs: python,
            start: |file, _| run(libraries().join("venv/bin/python"), file),
        },
        Program {
            file: "receiver_standard.mjs",
            signature: standard,
            needs: node,
            // Node looks for libraries beside the file.
            start: |file, _| {
                let beside = libraries().join("receiver_standard.mjs");
                std::fs::copy(file, &beside).expect("the folder takes it");
                run("node", &beside)
            },
        },
    ]
}

fn run(program: impl AsRef<OsStr>, file: &Path) -> Command {
    let mut command = Command::new(program);
    if file.is_file() {
        command.arg(file);
    }
    command
}

fn built(file: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("receiver-go");
    let mut build = std::process::Command::new("go");
    build.env("CGO_ENABLED", "0").args(["build", "-o"]).arg(&program).arg(file);
    assert!(build.status().is_ok_and(|status| status.success()), "go builds it");
    program
}

/// Whether a program of that name is in the path, or that folder is there.
fn is_there(needed: &Path) -> bool {
    let in_path = || std::env::split_paths(&std::env::var_os("PATH")?).find(|folder| folder.join(needed).is_file());
    if needed.components().count() > 1 { needed.is_dir() } else { in_path().is_some() }
}

/// A program that runs, until it is dropped.
struct Running {
    api: Api,
    _child: Child,
}

impl Running {
    async fn start(program: &Program, secret: &str) -> Self {
        let address = free_address();
        let seen = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("seen-{}", Uuid::new_v4()));
        let file =
            repository().join("proto-schemas/receivers").join(program.file).canonicalize().expect("the file is there");
        let mut command = (program.start)(&file, address.port());
        command.env("PORT", address.port().to_string()).env("SIGNING_SECRET", secret).env("SEEN", seen);
        let quiet = || Stdio::null();
        let child =
            command.stdin(quiet()).stdout(quiet()).stderr(quiet()).kill_on_drop(true).spawn().expect("it starts");
        let listens = || async { tokio::net::TcpStream::connect(address).await.ok() };
        eventually(&format!("{} listens", program.file), SOON, listens).await;
        Self { api: Api { address, session: None }, _child: child }
    }

    async fn answer(&self, post: &Post) -> (u16, String) {
        let headers: Vec<_> = post.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = self.api.send("POST", "/hooks", &headers, post.body.clone()).await;
        (answer.status, answer.text.trim().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_takes_a_real_delivery_once_and_refuses_what_is_not_one() {
    System::run(Options::default(), async |system| {
        let (good, secret) = delivery(&system).await;
        for program in programs() {
            let Program { file, signature, needs, .. } = &program;
            if !is_there(needs) {
                // Past the test's captured output: nobody shall think that it was tested.
                let _ = writeln!(std::io::stderr(), "{file} was not tested: {} is missing", needs.display());
                continue;
            }
            let receiver = Running::start(&program, &secret).await;
            for (what, post) in bad(&good, *signature) {
                assert_eq!(receiver.answer(&post).await.0, 400, "{file}: {what}");
            }
            assert_eq!(receiver.answer(&good).await, (200, "received".to_owned()), "{file}");
            assert_eq!(receiver.answer(&good).await, (200, "seen before".to_owned()), "{file}");
            let other = Running::start(&program, &format!("whsec_{}", "0123456789abcdef".repeat(4))).await;
            assert_eq!(other.answer(&good).await.0, 400, "{file}: a wrong secret");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receivers_in_rust_do_the_same() {
    System::run(Options::default(), async |system| {
        let (good, secret) = delivery(&system).await;
        let wrong = format!("whsec_{}", "0123456789abcdef".repeat(4));
        let now = || time::OffsetDateTime::now_utc().unix_timestamp();
        let service = |receiver: &mut rust::Receiver, post: &Post| {
            receiver.receive(post.header("x-service-signature"), post.header("x-service-webhook-id"), &post.body, now())
        };
        let standard = |receiver: &mut rust_standard::Receiver, post: &Post| {
            let headers = post.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            receiver.receive(&headers.collect(), &post.body)
        };
        let (received, seen) = ((200, "received".to_owned()), (200, "seen before".to_owned()));

        let mut receiver = rust::Receiver::new(&secret);
        for (what, post) in bad(&good, Signature::Service) {
            assert_eq!(service(&mut receiver, &post).0, 400, "{what}");
        }
        assert_eq!([service(&mut receiver, &good), service(&mut receiver, &good)], [received.clone(), seen.clone()]);
        assert_eq!(service(&mut rust::Receiver::new(&wrong), &good).0, 400);

        let mut receiver = rust_standard::Receiver::new(&secret).unwrap();
        for (what, post) in bad(&good, Signature::Standard) {
            assert_eq!(standard(&mut receiver, &post).0, 400, "{what}");
        }
        assert_eq!([standard(&mut receiver, &good), standard(&mut receiver, &good)], [received, seen]);
        assert_eq!(standard(&mut rust_standard::Receiver::new(&wrong).unwrap(), &good).0, 400);
    })
    .await;
}
