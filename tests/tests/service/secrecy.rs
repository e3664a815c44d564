//! What must be seen nowhere: signing secrets, sealing keys, session ids and passwords (crates/README.md, invariant 7).
use std::{collections::HashMap, time::Duration};

use domain::EventType;
use end_to_end::{
    api::{Answer, Api, Created},
    commands::done,
    events::Event,
    outsider::sql,
    processes::{Process, with_api_address},
    receiver::{Received, Receiver, Reply, TestCa, always, behaviour},
    system::{Options, System, TestSystem},
    wait::{SOON, until},
};
use serde_json::json;
use uuid::Uuid;

type Environment = HashMap<String, String>;

/// So much of a secret is looked for that a hit is no accident.
const TELLING_CHARS: usize = 24;

/// What is looked for: secrets by name, each in the forms in which it might be shown.
#[derive(Default)]
struct Secrets(Vec<(&'static str, Vec<String>)>);

impl Secrets {
    fn add(&mut self, name: &'static str, text: &str) {
        let text = &text[..text.len().min(TELLING_CHARS)];
        assert!(text.len() >= 12, "{name} is too short to be looked for: {} characters", text.len());
        self.0.push((name, vec![text.to_owned(), hex::encode(text), decimals(text.as_bytes())]));
    }

    /// Adds a text of hexadecimal digits, also as the bytes that they stand for.
    fn add_digits(&mut self, name: &'static str, digits: &str) {
        self.add(name, digits);
        let bytes = hex::decode(&digits[..TELLING_CHARS]).unwrap();
        self.0.push((name, vec![decimals(&bytes), digits[..TELLING_CHARS].to_uppercase()]));
    }

    fn found_in(&self, text: &str) -> Vec<&'static str> {
        self.0.iter().filter(|(_, forms)| forms.iter().any(|form| text.contains(form))).map(|(name, _)| *name).collect()
    }

    fn assert_not_in(&self, place: &str, text: &str) {
        let found = self.found_in(text);
        let line = |line: &&str| !self.found_in(line).is_empty();
        let first = text.lines().find(line).map(|line| line.chars().take(600).collect::<String>());
        assert!(found.is_empty(), "{place} shows: {}\n{}", found.join(", "), first.unwrap_or_default());
    }
}

/// Bytes as `Debug` shows them.
fn decimals(bytes: &[u8]) -> String {
    format!("{bytes:?}").trim_matches(['[', ']']).to_owned()
}

fn password(url: &str) -> &str {
    let (login, _) = url.split_once("://").unwrap().1.split_once('@').expect("the URL has a login");
    login.split_once(':').expect("the login has a password").1
}

#[test]
fn a_secret_is_found_in_every_form() {
    let digits = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let mut secrets = Secrets::default();
    secrets.add_digits("key", digits);
    for shown in [
        digits.to_owned(),
        format!("whsec_{}", &digits[..30]),
        format!("{:?}", digits.as_bytes()),
        format!("{:?}", hex::decode(digits).unwrap()),
        format!(r"\x{}", hex::encode(digits)),
    ] {
        assert_eq!(secrets.found_in(&format!("x {shown} y")), ["key"], "{shown}");
    }
    assert!(secrets.found_in(&digits[1..]).len() < 2 && secrets.found_in("0f1e").is_empty());
}

async fn session(variables: &Environment, tenant: Uuid) -> String {
    done(variables, &["session", "create", "--tenant", &tenant.to_string()]).await.trim().to_owned()
}

fn shown(answer: &Answer) -> String {
    format!("{} {:?} {}", answer.status, answer.headers, answer.text)
}

/// The API's answers to requests of all kinds, except a creation.
async fn answers(admin: &Api, viewer: &Api, webhook: &Created) -> Vec<String> {
    let mut answers = Vec::new();
    let one = format!("/api/v1/webhooks/{}/", webhook.id);
    let nobody = Api { session: None, ..admin.clone() };
    let stranger = Api { session: Some("not-a-session".to_owned()), ..admin.clone() };
    for api in [admin, viewer, &nobody, &stranger] {
        for path in ["/api/v1/webhooks/", &one, &format!("{one}deliveries/"), "/api/v1/openapi.json", "/nowhere"] {
            answers.push(shown(&api.get(path).await));
        }
        for body in ["", "{", r#"{"name":7,"url":"http://x","events":[]}"#, r#"{"url":"https://b.example/"}"#] {
            let json = [("content-type", "application/json")];
            answers.push(shown(&api.send("POST", "/api/v1/webhooks/", &json, body).await));
            answers.push(shown(&api.send("POST", "/api/v1/webhooks/", &[], body).await));
            answers.push(shown(&api.send("PATCH", &one, &json, body).await));
        }
    }
    answers
}

/// The API's answers to requests with keys, which have these statuses.
async fn answers_to_programs(system: &System, keys: [(&str, u16); 2]) -> Vec<String> {
    let (api, mut answers) = (system.anonymous().await, Vec::new());
    for (key, status) in keys {
        let authorization = format!("Bearer {key}");
        let answer = api.send("GET", "/api/v1/webhooks/", &[("authorization", &authorization)], "").await;
        assert_eq!(answer.status, status);
        answers.push(shown(&answer));
    }
    answers
}

/// Every row of every table, with bytes as hexadecimal digits and as escaped text.
async fn tables(database_url: &str) -> Vec<(String, String)> {
    let names = "SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    let mut tables = Vec::new();
    for name in sql(database_url, names).await {
        let name: String = name.get(0);
        let mut text = String::new();
        for output in ["hex", "escape"] {
            let url = format!("{database_url}?options=-c%20bytea_output%3D{output}");
            for row in sql(&url, &format!("SELECT t::text FROM ONLY {name} t")).await {
                text += row.get::<_, &str>(0);
                text.push('\n');
            }
        }
        tables.push((name, text));
    }
    tables
}

/// Takes every message that waits on any queue.
async fn messages(system: &System) -> Vec<(String, String)> {
    let names = &system.names;
    let mut queues = system.retry_queues();
    queues.extend([
        names.events(),
        names.rejected(),
        names.main(),
        names.bulk(),
        names.slow(),
        names.dead(),
        names.unroutable(),
    ]);
    let mut messages = Vec::new();
    for queue in queues {
        while let Some(message) = system.upstream.take(&queue).await {
            let body = String::from_utf8_lossy(&message.data).into_owned();
            messages.push((queue.clone(), format!("{:?} {body}", message.properties)));
        }
    }
    messages
}

/// Publishes one event each for a receiver that takes it, one that fails, one that is not trusted and one that is gone;
/// then a message that is no event and one that is no job.
async fn traffic(system: &System, admin: &Api, tenant: Uuid) -> Traffic {
    let untrusted = TestCa::new();
    let refusing = behaviour(|one, _| Reply::status(500).body(format!("{:?}", one.headers)));
    let (good, failing) = (Receiver::start(&system.ca, always(200)), Receiver::start(&system.ca, refusing));
    let (strange, gone) = (Receiver::start(&untrusted, always(200)), Receiver::start(&system.ca, always(200)));
    gone.stop().await;
    let mut webhooks = Vec::new();
    let header = random_digits();
    for (receiver, event_type) in [&good, &failing, &strange, &gone].into_iter().zip(EventType::ALL) {
        let webhook = admin.create(&receiver.url("/hook"), &[event_type.as_str()]).await;
        let change = json!({"headers": {"Authorization": format!("Bearer {header}"), "X-Key": header}});
        assert_eq!(admin.patch(&format!("/api/v1/webhooks/{}/", webhook.id), &change).await.status, 200);
        webhooks.push(webhook);
        system.upstream.publish(&[Event::now(event_type, tenant)]).await;
    }
    system.upstream.publish_raw("quote.closed", b"no event").await;
    system.upstream.publish_to(&system.names.exchange(), &system.names.main(), b"no job").await;
    for (outcome, count) in [("success", 1), ("status", 1), ("tls", 1), ("connect", 1)] {
        system.until_count(&format!("SELECT count(*) FROM attempts WHERE outcome = '{outcome}'"), count, SOON).await;
    }
    for (queue, count) in [(system.names.rejected(), 1), (system.names.dead(), 1), (system.retry_queues().remove(0), 3)]
    {
        let what = format!("{count} messages wait on {queue}");
        until(&what, SOON, async || system.upstream.ready(&queue).await == count).await;
    }
    let id = |receiver: &Receiver| receiver.received()[0].header("x-service-webhook-id").unwrap().to_owned();
    let signature = |one: Received| one.header("x-service-signature").unwrap().rsplit_once("v1=").unwrap().1.to_owned();
    let signatures = [&good, &failing].into_iter().flat_map(Receiver::received).map(signature).collect();
    let standard = |one: Received| one.header("webhook-signature").unwrap().strip_prefix("v1,").unwrap().to_owned();
    let standard_signatures = [&good, &failing].into_iter().flat_map(Receiver::received).map(standard).collect();
    assert_eq!(failing.received()[0].header("x-key"), Some(header.as_str()));
    Traffic { webhooks, deliveries: vec![id(&good), id(&failing)], signatures, standard_signatures, header }
}

/// What [`traffic`] left.
struct Traffic {
    webhooks: Vec<Created>,
    deliveries: Vec<String>,
    /// The digests that receivers got. One of these answers with the headers that it got.
    signatures: Vec<String>,
    /// The same by Standard Webhooks, in base64.
    standard_signatures: Vec<String>,
    /// The value of a header of each webhook's own.
    header: String,
}

fn hidden(system: &System, sessions: [&str; 2], keys: [&str; 2], webhooks: &[Created]) -> Secrets {
    let mut secrets = Secrets::default();
    for key in keys {
        secrets.add_digits("a key", key.strip_prefix("wk_").unwrap());
    }
    for webhook in webhooks {
        secrets.add_digits("a signing secret", webhook.secret.strip_prefix("whsec_").unwrap());
    }
    secrets.add_digits("the sealing key", system.variables["WEBHOOKS__SECRETS__KEYS"].strip_prefix("one:").unwrap());
    for session in sessions {
        secrets.add_digits("a session id", session);
    }
    secrets.add("the database's password", password(&system.database_url));
    secrets.add("the broker's password", password(&system.amqp_url));
    secrets
}

fn random_digits() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn talkative() -> Options {
    Options {
        schedule: "1h,2h,3h,4h,5h,6h",
        ..Options::with([
            ("LOG__LEVEL", "trace,lapin=trace"),
            ("LOG__FORMAT", "json"),
            ("SECRETS__KEYS", &format!("one:{}", random_digits())),
        ])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_any_log_answer_message_or_table() {
    let system = TestSystem::prepared(talkative()).await;
    let variables = with_api_address(&system).await;
    let tenant = Uuid::new_v4();
    let api = Process::start("api-service", &variables).await;
    let ingest = Process::start("event-ingest", &variables).await;
    let dispatcher = Process::start("dispatcher", &variables).await;
    let admin = session(&variables, tenant).await;
    let admin_api = Api { session: Some(admin.clone()), ..system.anonymous().await };
    let viewer_api = system.session(tenant, "viewer", Duration::from_secs(600)).await;
    let viewer = viewer_api.session.clone().unwrap();
    let Traffic { webhooks, deliveries, signatures, standard_signatures, header } =
        traffic(&system, &admin_api, tenant).await;
    let key = done(&variables, &["key", "create", "--tenant", &tenant.to_string(), "--name", "n"]).await;
    let (key, stranger) = (key.trim(), format!("wk_{}", random_digits()));
    let mut secrets = hidden(&system, [&admin, &viewer], [key, &stranger], &webhooks);
    secrets.add_digits("a header's value", &header);
    for answer in answers_to_programs(&system, [(key, 200), (&stranger, 401)]).await {
        secrets.assert_not_in("an answer to a program", &answer);
    }
    for answer in answers(&admin_api, &viewer_api, &webhooks[0]).await {
        secrets.assert_not_in("an answer of the API", &answer);
    }
    for process in [&api, &ingest, &dispatcher] {
        let ops = Api { address: process.ops, session: None };
        for path in ["/healthz", "/readyz", "/metrics"] {
            secrets.assert_not_in(path, &shown(&ops.get(path).await));
        }
    }

    let log = dispatcher.log.clone();
    assert!(std::fs::read_to_string(&log).unwrap().contains(&deliveries[0]), "the log is the dispatcher's");
    let logs = [api.logged(), ingest.logged(), dispatcher.logged()];
    assert!(dispatcher.terminate().await.success());
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let queue = system.names.main();
    until("a job waits", SOON, async || system.upstream.ready(&queue).await == 1).await;
    for (name, log) in ["api-service", "event-ingest", "dispatcher"].into_iter().zip(logs) {
        assert!(log.contains(r#""level":"DEBUG","#) && log.contains(r#""target":"lapin::"#), "{name} is talkative");
        secrets.assert_not_in(&format!("the log of {name}"), &log);
    }

    let messages = messages(&system).await;
    assert_eq!(messages.len(), 6, "one rejected, one dead, one job and three retries: {messages:?}");
    assert!(messages.iter().any(|(_, message)| message.contains(&deliveries[1])));
    for (queue, message) in messages {
        secrets.assert_not_in(&queue, &message);
    }
    let tables = tables(&system.database_url).await;
    let all: String = tables.iter().map(|(_, text)| text.as_str()).collect();
    for control in [&webhooks[0].id, &deliveries[0], &hex::encode("x-service-signature"), "x-service-signature"] {
        assert!(all.contains(control), "the tables hold {control}");
    }
    let mut signed = Secrets::default();
    for digest in &signatures {
        signed.add_digits("a signature, which fits any time", digest);
    }
    for digest in &standard_signatures {
        signed.add("a signature by Standard Webhooks", digest);
    }
    assert!(signatures.len() >= 2 && standard_signatures.len() == signatures.len());
    for (table, text) in tables {
        secrets.assert_not_in(&table, &text);
        signed.assert_not_in(&table, &text);
    }
}
