//! `webhookctl doctor`, at real servers that are well, broken or away.
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use end_to_end::{
    commands::{Ran, done, webhookctl},
    servers::{PrivateServers, Server},
    system::{Options, Service, System, TestSystem},
    wait::{eventually, eventually_ok, until},
};
use lapin::{
    Connection, ConnectionProperties,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::Value;
use uuid::Uuid;

/// What the doctor promises, and what a loaded machine may take to start it.
const LONGEST: Duration = Duration::from_secs(20 + 10);
/// The deadline for what the doctor is asked about several times.
const LONG: Duration = Duration::from_secs(90);

struct Report {
    code: i32,
    checks: Vec<Value>,
    /// The same for people.
    screen: String,
}

/// Asks for both forms at once. What they look at may change in between: then it asks again.
async fn doctor(variables: &HashMap<String, String>) -> Report {
    eventually("both forms say the same", LONG, || ask(variables)).await
}

async fn ask(variables: &HashMap<String, String>) -> Option<Report> {
    let run = async |more: &[&str]| {
        let began = Instant::now();
        let Ran { code, out, err } = webhookctl(variables, &[&["doctor"], more].concat()).await;
        assert!(began.elapsed() < LONGEST, "it took {:?}", began.elapsed());
        assert_eq!(err, "");
        (code, out)
    };
    let ((code, document), (code_of_screen, screen)) = tokio::join!(run(&["--json"]), run(&[]));
    let document: Value = serde_json::from_str(&document).unwrap();
    let checks = document["checks"].as_array().unwrap().clone();
    let is_wrong = checks.iter().any(|check| check["level"] == "error");
    assert_eq!((code, document["level"] == "error"), (i32::from(is_wrong), is_wrong), "{document}");
    assert_eq!(code_of_screen, i32::from(!screen.contains("\nNothing is wrong")), "{screen}");
    (code == code_of_screen).then_some(Report { code, checks, screen })
}

impl Report {
    /// The ids of what is wrong.
    fn wrong(&self) -> Vec<&str> {
        let mut ids: Vec<_> = self.of("error").collect();
        ids.dedup();
        ids
    }

    fn of<'r>(&'r self, level: &'r str) -> impl Iterator<Item = &'r str> {
        self.checks.iter().filter(move |check| check["level"] == level).map(|check| check["id"].as_str().unwrap())
    }

    /// The one thing that is wrong: what the operator reads, and what mends it.
    fn only(&self, id: &str) -> (String, String) {
        assert_eq!((self.code, self.wrong()), (1, vec![id]), "{}", self.screen);
        let check = self.checks.iter().find(|check| check["id"] == id && check["level"] == "error").unwrap();
        let part = |name: &str| check[name].as_str().unwrap().to_owned();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let screen = words(&self.screen);
        assert_eq!(screen.matches(&words(&part("text"))).count(), 2, "told, and told again: {screen}");
        assert!(screen.contains(&format!("→ {}", words(&part("remedy")))), "{screen}");
        (part("text"), part("remedy"))
    }
}

/// Waits until nothing is wrong: an ingest leads and every lane has its consumer.
async fn until_well(system: &System) -> Report {
    eventually("nothing is wrong", LONG, || async {
        let report = doctor(&system.variables).await;
        (report.code == 0).then_some(report)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_wrong_with_a_service_that_runs_and_a_user_without_a_limit_of_connections_gets_one() {
    let system = TestSystem::running(Options::default()).await;
    let webhooks = system.admin(Uuid::new_v4()).await;
    webhooks.create("https://example.com/hook", &["quote.closed"]).await;
    let report = until_well(&system).await;
    assert!(report.screen.contains("\nNothing is wrong"), "{}", report.screen);
    assert!(report.screen.contains("current: the last migration is 20"), "{}", report.screen);
    let right: Vec<_> = report.of("ok").collect();
    let areas = [
        "settings",
        "database",
        "schema",
        "partitions",
        "keys",
        "broker",
        "queues",
        "services",
        "leader",
        "backlog",
        "attempts",
    ];
    for area in areas {
        assert!(right.iter().any(|id| id.starts_with(area)), "{area} in {right:?}");
    }
    for secret in [&system.database_url, &system.amqp_url] {
        let (_, login) = secret.split_once("://").unwrap().1.split_once('@').unwrap().0.split_once(':').unwrap();
        assert!(!report.screen.contains(login), "{}", report.screen);
    }

    // A user without a limit of connections is warned of, with the statement that sets one.
    let (login, host) = system.database_url.split_once("://").unwrap().1.split_once('@').unwrap();
    let (owner, user) = (login.split(':').next().unwrap(), format!("plain_{}", Uuid::new_v4().simple()));
    system.sql(&format!("CREATE ROLE {user} LOGIN PASSWORD 'word' IN ROLE {owner}")).await;
    let variables = system.with(&[("DATABASE__URL", &format!("postgres://{user}:word@{host}"))]);
    let connections = async || {
        let report = doctor(&variables).await;
        report.checks.into_iter().find(|check| check["id"] == "database.connections").unwrap()
    };
    let unlimited = connections().await;
    assert_eq!(unlimited["level"], "warning", "{unlimited}");
    let remedy = unlimited["remedy"].as_str().unwrap();
    assert!(remedy.starts_with(&format!("ALTER ROLE {user} CONNECTION LIMIT ")), "{remedy}");
    system.sql(remedy).await;
    let limited = connections().await;
    assert_eq!((&limited["level"], &limited["remedy"]), (&"ok".into(), &Value::Null), "{limited}");
    system.sql(&format!("DROP ROLE {user}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_thing_that_is_broken_is_named_with_what_mends_it() {
    let system = TestSystem::running(Options::default()).await;
    let (variables, names, broker) = (&system.variables, &system.names, &system.upstream);
    system.admin(Uuid::new_v4()).await.create("https://example.com/hook", &["quote.closed"]).await;
    until_well(&system).await;

    broker.delete_queue(&names.unroutable()).await;
    let (text, remedy) = doctor(variables).await.only("queues.present");
    assert!(text.contains(&names.unroutable()) && remedy.contains("webhookctl dead list"), "{text}: {remedy}");
    done(variables, &["dead", "list"]).await;
    assert_eq!(doctor(variables).await.code, 0);

    broker.publish_to(&names.exchange(), &names.dead(), b"no job").await;
    let (text, remedy) = doctor(variables).await.only("queues.dead");
    assert!(text.contains("1 dead letter") && remedy.contains("webhookctl dead list"), "{text}: {remedy}");
    broker.take(&names.dead()).await.unwrap();

    broker.publish_to(&names.exchange(), &names.rejected(), b"no event").await;
    let report = doctor(variables).await;
    assert_eq!((report.code, report.of("warning").any(|id| id == "queues.rejected")), (0, true));
    broker.take(&names.rejected()).await.unwrap();

    let failing = "INSERT INTO webhook_stats VALUES \
                   (gen_random_uuid(), date_bin('1 hour', now(), '2000-01-01Z'), 'connect', 0, 30, 0)";
    system.sql(failing).await;
    let report = doctor(variables).await;
    assert_eq!((report.code, report.of("warning").any(|id| id == "attempts.failing")), (0, true));
    assert!(report.screen.contains("30 of 30 attempts failed") && report.screen.contains("webhookctl top"));
    system.sql("DELETE FROM webhook_stats").await;

    let other_digits = system.with(&[("SECRETS__KEYS", &format!("test:{}", hex::encode([8; 32])))]);
    let (text, remedy) = doctor(&other_digits).await.only("keys.open");
    assert!(text.contains("other digits") && remedy.contains("webhookctl keys list"), "{text}: {remedy}");
    let other_key = system.with(&[("SECRETS__KEYS", &format!("other:{}", hex::encode([7; 32])))]);
    assert!(doctor(&other_key).await.only("keys.open").0.contains("\"test\" is not configured"));

    system.stop(Service::Dispatcher).await;
    let (text, remedy) = doctor(variables).await.only("services.dispatchers");
    assert!(text.contains("no dispatcher") && remedy.contains("start a dispatcher"), "{text}: {remedy}");
    system.start(Service::Dispatcher).await;

    system.stop(Service::Ingest).await;
    let report = doctor(variables).await;
    assert_eq!(report.wrong(), ["services.ingest", "leader.present"], "{}", report.screen);
    system.start(Service::Ingest).await;
    until_well(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_another_baseline_and_an_empty_database_are_told_apart() {
    let system = TestSystem::running(Options::default()).await;
    until_well(&system).await;
    let newer = "INSERT INTO __diesel_schema_migrations (version) VALUES ('20990101000001')";
    system.sql(newer).await;
    let report = doctor(&system.variables).await;
    assert_eq!((report.code, report.of("warning").any(|id| id == "schema.version")), (0, true), "{}", report.screen);
    let other = "UPDATE __diesel_schema_migrations SET version = '20261127000020' WHERE version < '2099'";
    system.sql(other).await;
    let (text, remedy) = doctor(&system.variables).await.only("schema.version");
    assert!(text.contains("another baseline") && remedy.contains("stack destroy"), "{text}: {remedy}");

    // As an operator finds it who has not migrated at all.
    system.stop(Service::Api).await;
    system.stop(Service::Ingest).await;
    system.stop(Service::Dispatcher).await;
    system.sql("DROP SCHEMA public CASCADE").await;
    system.sql("CREATE SCHEMA public").await;
    let report = doctor(&system.variables).await;
    assert!(report.wrong().contains(&"schema.version"), "{}", report.screen);
    assert!(report.screen.contains("1 missing migration"), "{}", report.screen);
    assert!(!report.screen.contains("does not exist"), "{}", report.screen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_declares_nothing_and_sees_a_queue_that_is_declared_otherwise() {
    let system = TestSystem::prepared(Options::default()).await;
    for _ in 0..2 {
        let report = doctor(&system.variables).await;
        let present = report.checks.iter().find(|check| check["id"] == "queues.present").unwrap();
        assert!(present["text"].as_str().unwrap().contains("none of the queues exists"), "{}", report.screen);
    }
    system.start(Service::Dispatcher).await;
    // Stopped, as it declares a missing queue whenever it connects, also to look at depths.
    system.stop(Service::Dispatcher).await;
    system.upstream.delete_queue(&system.names.notices()).await;
    let connection = Connection::connect(&system.amqp_url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(system.names.notices().into(), options, arguments).await.unwrap();
    let report = doctor(&system.variables).await;
    assert!(report.wrong().contains(&"queues.arguments"), "{}", report.screen);
    assert!(report.screen.contains("inequivalent arg 'x-"), "{}", report.screen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_away_hides_nothing_else() {
    let system = TestSystem::running(Options::default()).await;
    until_well(&system).await;
    let (no_database, no_broker) = ("postgres://u:secret@127.0.0.1:1/x", "amqp://u:secret@127.0.0.1:1/x");
    let report = doctor(&system.with(&[("DATABASE__URL", no_database)])).await;
    let (text, _) = report.only("database.connection");
    assert!(text.contains("refused") && !text.contains("secret"), "{text}");
    assert!(report.of("ok").any(|id| id == "services.dispatchers"), "{}", report.screen);

    let report = doctor(&system.with(&[("BROKER__URL", no_broker)])).await;
    let (text, _) = report.only("broker.connection");
    assert!(text.contains("127.0.0.1:1: ") && !text.contains("secret"), "{text}");
    assert!(report.of("ok").any(|id| id == "leader.present"), "{}", report.screen);

    let both = format!("{no_broker},{}", system.amqp_url);
    let report = doctor(&system.with(&[("BROKER__URL", &both)])).await;
    assert_eq!((report.code, report.of("warning").any(|id| id == "broker.connection")), (0, true));

    let nowhere = system.with(&[("BROKER__MANAGEMENT_URL", "http://127.0.0.1:1")]);
    let report = doctor(&nowhere).await;
    assert_eq!((report.code, report.of("warning").any(|id| id == "cluster.nodes")), (0, true), "{}", report.screen);
    assert!(report.screen.contains("http://127.0.0.1:1/"), "{}", report.screen);

    let mut unset = system.variables.clone();
    unset.retain(|name, _| name != "WEBHOOKS__DATABASE__URL");
    let report = doctor(&unset).await;
    let (text, _) = report.only("settings.usable");
    assert_eq!(text, "database.url (WEBHOOKS__DATABASE__URL) is not set");
    assert!(report.of("ok").any(|id| id == "services.dispatchers"), "{}", report.screen);

    // None can be used: the first one cannot be read at all, the last one is found only when its file is opened.
    for (name, value, fault) in [
        ("RETRY__SCHEDULE", "soon", "retry.schedule (WEBHOOKS__RETRY__SCHEDULE)"),
        ("DATABASE__URL", "nonsense", "database.url (WEBHOOKS__DATABASE__URL)"),
        ("EGRESS__EXTRA_CA_FILE", "/no/such/file", "egress.extra_ca_file"),
    ] {
        let (text, _) = doctor(&system.with(&[(name, value)])).await.only("settings.usable");
        assert!(text.contains(fault), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_policies_and_alarms_are_seen_and_a_frozen_server_does_not_stop_it() {
    let servers = PrivateServers::borrow().await;
    let system = TestSystem::running(servers.options(Options::default())).await;
    let report = until_well(&system).await;
    assert!(report.of("ok").any(|id| id == "broker.message_size"), "{}", report.screen);
    // The default of RabbitMQ 3.
    servers.limit_messages(128 * 1024 * 1024);
    let report = doctor(&system.variables).await;
    servers.limit_messages(1024 * 1024);
    assert_eq!((report.code, report.of("warning").any(|id| id == "broker.message_size")), (0, true));
    assert!(report.screen.contains("max_message_size = 1048576"), "{}", report.screen);
    assert_eq!(system.upstream.ready(&system.names.unroutable()).await, 0, "its message was rolled back");
    let variables = system.with(&[("BROKER__MANAGEMENT_URL", &servers.management())]);

    // The policies of a queue are known with its statistics, seconds after it is declared.
    eventually_ok(LONG, || async {
        let report = doctor(&variables).await;
        let is_well = |id: &&str| report.of("ok").any(|right| right == *id);
        let all = ["cluster.members", "cluster.policies", "cluster.bindings"].iter().all(is_well);
        if report.code == 0 && all { Ok(()) } else { Err(report.screen) }
    })
    .await;

    let of_ours = format!("^{}", system.names.exchange());
    servers.rabbitmqctl(&["set_policy", "-p", "/", "short", &of_ours, r#"{"message-ttl":3600000}"#]);
    let report = eventually("the policy is seen", LONG, || async {
        let report = doctor(&variables).await;
        (report.code == 1).then_some(report)
    });
    let (text, remedy) = report.await.only("cluster.policies");
    assert!(text.contains("message-ttl = 3600000") && remedy.contains("clear_policy -p / short"), "{text}: {remedy}");
    servers.rabbitmqctl(&["clear_policy", "-p", "/", "short"]);

    servers.rabbitmqctl(&["add_user", "plain", "word"]);
    servers.rabbitmqctl(&["set_permissions", "plain", ".*", ".*", ".*"]);
    let (_, host) = system.amqp_url.split_once('@').unwrap();
    let mut as_plain = variables.clone();
    as_plain.insert("WEBHOOKS__BROKER__URL".to_owned(), format!("amqp://plain:word@{host}"));
    let report = doctor(&as_plain).await;
    let nodes = report.checks.iter().find(|check| check["id"] == "cluster.nodes").unwrap();
    assert_eq!(nodes["level"], "warning", "{}", report.screen);
    assert!(nodes["text"].as_str().unwrap().contains("needs the tag monitoring"), "{}", report.screen);
    assert!(nodes["remedy"].as_str().unwrap().contains("set_user_tags"), "{}", report.screen);

    servers.rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"]);
    until("the alarm is seen by both", LONG, || async {
        let report = doctor(&variables).await;
        ["broker.blocked", "cluster.alarms"].iter().all(|id| report.wrong().contains(id))
    })
    .await;
    servers.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]);
    until_well(&system).await;

    servers.freeze(Server::Rabbitmq);
    let report = doctor(&variables).await;
    servers.thaw(Server::Rabbitmq);
    assert!(report.wrong().contains(&"broker.connection"), "{}", report.screen);
    assert!(report.of("ok").any(|id| id == "database.version"), "{}", report.screen);

    servers.freeze(Server::Postgres);
    let report = doctor(&variables).await;
    servers.thaw(Server::Postgres);
    assert!(report.wrong().contains(&"database.connection"), "{}", report.screen);
    assert!(report.of("ok").any(|id| id == "broker.version"), "{}", report.screen);
}
