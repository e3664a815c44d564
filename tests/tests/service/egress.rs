//! What receivers, their names and their owners can do to the service (crates/README.md, outbound requests).

use end_to_end::{
    api::{Answer, Api},
    events::Event,
    name_server::{NameServer, Say},
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem},
};
use serde_json::{Value, json};
use service_kit::Settings;
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

/// One attempt: the next one is too late to disturb the test.
const ONCE: &str = "1h,2h";

fn with(schedule: &'static str, settings: &[(&'static str, String)]) -> Options {
    Options { schedule, settings: settings.to_vec(), ..Options::default() }
}

async fn publish(system: &System, tenant: Uuid) {
    system.upstream.publish(&Event::closed(tenant, 1)).await;
}

fn registration(url: &str) -> Value {
    json!({"name": "A test", "url": url, "events": ["quote.closed"]})
}

/// The code and the message of the only violation in a rejected request.
fn violation(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 422, "{}", answer.text);
    let errors = answer.json()["errors"].clone();
    assert_eq!((errors.as_array().unwrap().len(), &errors[0]["field"]), (1, &json!("url")), "{errors}");
    let text = |member: &str| errors[0][member].as_str().unwrap().to_owned();
    (text("code"), text("message"))
}

/// The newest delivery's log of attempts, once the delivery is in `state`.
async fn attempts(api: &Api, webhook: &str, state: &str) -> Vec<Value> {
    let newest = api.newest_in(webhook, state).await;
    let delivery = api.delivery(webhook, newest["id"].as_str().unwrap()).await;
    delivery["attempt_log"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_hosts_ports_and_addresses_cannot_be_registered() {
    let settings = [
        ("EGRESS__DENIED_NETWORKS", "203.0.112.0/24, 2a00:1450:64::/96".to_owned()),
        ("EGRESS__ALLOWED_NETWORKS", String::new()),
        ("EGRESS__ALLOWED_PORTS", "443, 8000-8999".to_owned()),
        ("EGRESS__DENIED_HOST_SUFFIXES", "internal.example".to_owned()),
    ];
    let system = TestSystem::serving(with(ONCE, &settings), [Service::Api]).await;
    let api = system.admin(Uuid::new_v4()).await;
    let webhook = api.create("https://hooks.example.com:8443/in", &["quote.closed"]).await.id;
    let before = api.webhook(&webhook).await;
    let host = "deliveries to this host are not allowed";
    for (url, code, message) in [
        ("https://internal.example/", "refused_host", host),
        ("https://A.B.Internal.EXAMPLE.:8443/", "refused_host", host),
        ("https://hooks.example.com:25/", "refused_port", "must not use port 25"),
        ("https://8.8.8.8:9000/", "refused_port", "deliveries to this port are not allowed"),
        ("https://127.1/", "refused_address", "127.0.0.1, which is not a public address (loopback)"),
        ("https://[::ffff:10.0.0.1]/", "refused_address", "(IPv4 mapped into IPv6)"),
        ("https://203.0.112.7/", "refused_address", "203.0.112.7, which is denied: deliveries to this address are not"),
        ("https://[64:ff9b::203.0.112.7]/", "refused_address", "which is denied"),
        ("https://[2a00:1450:64::10.0.0.1]/", "refused_address", "which is denied"),
        ("https://127.0.0.1\u{3002}/", "refused_address", "(loopback)"),
    ] {
        let path = format!("/api/v1/webhooks/{webhook}/");
        for answer in
            [api.post("/api/v1/webhooks/", &registration(url)).await, api.patch(&path, &json!({"url": url})).await]
        {
            let (found, text) = violation(&answer);
            assert!(found == code && text.contains(message), "{url}: {found}: {text}");
        }
    }
    assert_eq!(api.webhook(&webhook).await, before);
    api.create("https://xinternal.example/", &["quote.closed"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_denied_after_it_was_registered_is_refused_at_the_attempt() {
    let system = TestSystem::running(Options { dispatchers: 0, ..with(ONCE, &[]) }).await;
    let name_server = NameServer::start(|_, _| Say::Addresses(vec![[127, 0, 0, 1].into()])).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let (api, port) = (system.admin(tenant).await, receiver.addr().port());
    let url = format!("https://a.receiver.example:{port}/");
    let webhook = api.create(&url, &["quote.closed"]).await.id;
    for (setting, value) in [("DENIED_HOST_SUFFIXES", "receiver.example"), ("ALLOWED_PORTS", "443")] {
        let mut variables = system.variables.clone();
        variables.insert(format!("WEBHOOKS__EGRESS__{setting}"), value.to_owned());
        variables.insert("WEBHOOKS__EGRESS__NAME_SERVERS".to_owned(), name_server.address().to_string());
        system.start_with(Service::Dispatcher, Settings::from_sources(None, variables).unwrap()).await;
        publish(&system, tenant).await;
        let attempts = attempts(&api, &webhook, "retrying").await;
        assert_eq!((attempts.len(), &attempts[0]["outcome"]), (1, &json!("refused_address")), "{attempts:?}");
        assert!(attempts[0]["error"].as_str().unwrap().contains("not allowed"), "{attempts:?}");
        system.stop(Service::Dispatcher).await;
    }
    assert_eq!((receiver.received().len(), name_server.names().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_to_a_denied_or_private_address_is_refused_until_it_leads_elsewhere() {
    let name_server = NameServer::start(|name, before| match (name, before) {
        ("moves.receiver.example", 0) => Say::Addresses(vec![[127, 0, 0, 2].into(), [10, 0, 0, 1].into()]),
        ("moves.receiver.example", _) => Say::Addresses(vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()]),
        _ => Say::NoSuchName,
    })
    .await;
    let settings = [
        ("EGRESS__NAME_SERVERS", name_server.address().to_string()),
        ("EGRESS__DENIED_NETWORKS", "127.0.0.2/32".to_owned()),
        ("EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8".to_owned()),
    ];
    let system = TestSystem::running(with("300ms,1h", &settings)).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let port = receiver.addr().port();
    let private = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let api = system.admin(tenant).await;
    let webhook = api.create(&format!("https://moves.receiver.example:{port}/"), &["quote.closed"]).await.id;
    publish(&system, tenant).await;
    let attempts = attempts(&api, &webhook, "succeeded").await;
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["dns", "success"]);
    let message = "the host name \"moves.receiver.example\" does not resolve to a public address";
    assert_eq!(attempts[0]["error"], message, "nothing of where in a private network it led, nor that there is one");
    assert_eq!((receiver.received().len(), name_server.asked("moves.receiver.example")), (1, 2));
    let own = TcpStream::connect(private.local_addr().unwrap()).await.unwrap();
    let (_, first) = private.accept().await.unwrap();
    assert_eq!(first, own.local_addr().unwrap(), "somebody else was there before");
}
