//! Posts against real TLS receivers on 127.0.0.1.

#![allow(clippy::unwrap_used, reason = "clippy knows functions that are tests, not crates that are")]

mod authority;
mod bodies;
mod connects;
mod evasions;
mod interim;
mod internal;
mod lengths;
#[path = "../../../../tests/src/name_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "it belongs to the end-to-end package")]
mod name_server;
mod names;
mod old_tls;
mod protocol;
mod receiver;
mod reuse;
mod statuses;
mod tls;

use std::time::Duration;

use authority::Authority;
use domain::{AddressPolicy, PostResult, ReceiverHeaders, WebhookUrl};
use egress::{Egress, EgressConfig, Post};
use tokio::time::timeout;

/// Long enough for anything that is not meant to time out, even on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(5);
/// The deadline of what is meant to time out.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

fn config(authority: &Authority, timeout: Duration) -> EgressConfig {
    EgressConfig {
        timeout,
        address_policy: loopback(),
        name_servers: Vec::new(),
        extra_ca_pem: Some(authority.pem().into_bytes()),
        idle_timeout: Duration::from_secs(4),
        max_idle_per_host: 4,
        max_idle: 100,
        user_agent: "test-agent/1".to_owned(),
    }
}

/// An egress whose posts fail the test if they do not end.
struct Client(Egress);

impl Client {
    fn new(config: EgressConfig) -> Self {
        Self(Egress::new(config).unwrap())
    }

    async fn post(&self, request: Post) -> PostResult {
        timeout(LONG_TIMEOUT * 2, self.0.post(request)).await.expect("a post that does not end").unwrap()
    }
}

fn egress(authority: &Authority, timeout: Duration) -> Client {
    Client::new(config(authority, timeout))
}

fn loopback() -> AddressPolicy {
    AddressPolicy::allowing(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()])
}

fn post(url: &str) -> Post {
    Post {
        url: WebhookUrl::parse(url, 2048, &loopback()).unwrap(),
        headers: vec![("X-Service-Webhook-Id", "an-id".to_owned())],
        receiver_headers: ReceiverHeaders::default(),
        body: "{\"a\": 1.0}".into(),
    }
}

#[test]
fn a_post_can_be_spawned() {
    fn assert_send<T: Send>(_: &T) {}
    let egress = egress(&Authority::new(), LONG_TIMEOUT);
    assert_send(&egress.0.post(post("https://127.0.0.1/")));
}
