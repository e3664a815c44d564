//! Measures what receivers can make the client hold, on its heap, with an allocator that counts. The receivers run in a
//! process of their own, which is this program again, so that nothing of theirs is counted.

#![allow(clippy::unwrap_used, reason = "clippy knows functions that are tests, not crates that are")]

#[path = "../it/authority.rs"]
#[allow(dead_code, reason = "it belongs to the other tests")]
mod authority;
mod hostile;

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use authority::Authority;
use domain::{AddressPolicy, OutcomeClass, PostResult, ReceiverHeaders, WebhookUrl};
use egress::{Egress, EgressConfig, Post};
use hostile::Hostility;
use peak_alloc::PeakAlloc;
use tokio::task::JoinSet;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The environment variable that tells a child which receiver to be.
const CHILD_VARIABLE: &str = "EGRESS_TEST_HOSTILITY";

/// A receiver in a process of its own. The process ends with its standard input.
struct Receiver {
    address: SocketAddr,
    pem: Vec<u8>,
    child: Child,
    _life: ChildStdin,
}

impl Receiver {
    fn start(hostility: Hostility) -> Self {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(this);
        command.args(["--exact", "the_receivers_own_process", "--nocapture"]).env(CHILD_VARIABLE, hostility.name());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.by_ref().find_map(|line| line.strip_prefix("listening on ")?.parse().ok()).unwrap();
        let pem: Vec<_> = lines.take_while(|line| line != "end").collect();
        Self { address, pem: pem.join("\n").into_bytes(), _life: child.stdin.take().unwrap(), child }
    }

    fn egress(&self, timeout: Duration) -> Egress {
        Egress::new(EgressConfig {
            timeout,
            address_policy: loopback(),
            name_servers: Vec::new(),
            extra_ca_pem: Some(self.pem.clone()),
            idle_timeout: Duration::from_secs(4),
            max_idle_per_host: 4,
            max_idle: 100,
            user_agent: "test-agent/1".to_owned(),
        })
        .unwrap()
    }

    fn post(&self, body: Vec<u8>) -> Post {
        let url = format!("https://{}/hook", self.address);
        Post {
            url: WebhookUrl::parse(&url, 2048, &loopback()).unwrap(),
            headers: Vec::new(),
            receiver_headers: ReceiverHeaders::default(),
            body: body.into(),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn loopback() -> AddressPolicy {
    AddressPolicy::allowing(vec!["127.0.0.0/8".parse().unwrap()])
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// In a child process, runs the receiver. Otherwise does nothing.
#[test]
fn the_receivers_own_process() {
    let Some(hostility) = std::env::var(CHILD_VARIABLE).ok().and_then(|name| Hostility::named(&name)) else { return };
    let authority = Authority::new();
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nlistening on {}\n{}\nend", listener.local_addr().unwrap(), authority.pem()).unwrap();
        out.flush().unwrap();
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            #[expect(clippy::disallowed_methods, reason = "the parent is gone, and the main thread serves for ever")]
            std::process::exit(0);
        });
        let acceptor = authority.acceptor(&["127.0.0.1"]);
        let mut connections = JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                if let Ok(stream) = acceptor.accept(tcp).await {
                    hostility.serve(stream).await;
                }
            });
        }
    });
}

/// Posts to a receiver. Returns the most that the client held beyond what it held before, in bytes, and the answer.
fn post_to(hostility: Hostility) -> (usize, PostResult) {
    let receiver = Receiver::start(hostility);
    runtime().block_on(async {
        let egress = receiver.egress(hostility.patience());
        let post = receiver.post(vec![b'x'; 1000]);
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let answer = egress.post(post).await.unwrap();
        (HEAP.peak_usage().saturating_sub(before), answer)
    })
}

/// One test, because there is one heap.
#[test]
fn no_receiver_makes_the_client_hold_much() {
    for hostility in Hostility::ALL {
        let (held, answer) = post_to(hostility);
        println!("{:32} {:7} bytes  {:?} {:?}", hostility.name(), held, answer.class, answer.elapsed);
        hostility.judge(&answer);
        assert!(answer.elapsed < hostility.patience() + Duration::from_secs(2), "{hostility:?}: {:?}", answer.elapsed);
        assert!(held < hostility.most_held(), "{hostility:?}: {held} bytes");
    }
    let each = hanging(400);
    println!("one hanging connection: {each} bytes");
    assert!(each < 48 * 1024, "{each} bytes for each hanging connection");
}

/// The bytes that each of `count` hanging requests holds, without its body.
fn hanging(count: usize) -> usize {
    let receiver = Receiver::start(Hostility::NeverAnswers);
    runtime().block_on(async {
        let egress = receiver.egress(Duration::from_secs(30));
        let body = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
        let post = Post { body, ..receiver.post(Vec::new()) };
        let (egress, post) = (Arc::new(egress), Arc::new(post));
        let before = HEAP.current_usage();
        let mut posts = JoinSet::new();
        for _ in 0..count {
            let (egress, post) = (Arc::clone(&egress), Arc::clone(&post));
            posts.spawn(async move { egress.post(Post::clone(&post)).await });
        }
        // Every request is written once the heap no longer changes.
        let (mut last, mut still) = (0, 0);
        while still < 20 {
            tokio::select! {
                answer = posts.join_next() => panic!("{answer:?}"),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
            let now = HEAP.current_usage();
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
        assert_eq!(posts.len(), count);
        let each = (last - before) / count;
        posts.shutdown().await;
        each
    })
}

fn is_timeout(answer: &PostResult) -> bool {
    (answer.class, answer.status) == (OutcomeClass::Timeout, None)
}
