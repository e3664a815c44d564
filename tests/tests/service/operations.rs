//! `webhookctl`, as operators run it.
use std::{collections::HashMap, process::Stdio};

use domain::EventType;
use end_to_end::{
    api::Api,
    commands::{command, done, webhookctl},
    events::Event,
    odd_publisher::{OddProperties, OddPublisher},
    proxy::{Mode, Proxy},
    receiver::{Receiver, always, verify},
    system::{Options, Service, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::Value;
use service_kit::Settings;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_another_baseline_is_neither_migrated_nor_used() {
    let system = TestSystem::prepared(Options::default()).await;
    system.sql("UPDATE __diesel_schema_migrations SET version = '20261127000020'").await;
    let tenant = Uuid::new_v4().to_string();
    for arguments in [&["migrate"][..], &["session", "create", "--tenant", &tenant]] {
        let ran = webhookctl(&system.variables, arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        for words in ["WEBHOOKS__DATABASE__URL", "another baseline", "nothing converts it", "webhookctl migrate"] {
            assert!(ran.err.contains(words), "{words:?} is missing in: {}", ran.err);
        }
    }
    assert_eq!(system.count("SELECT count(*) FROM __diesel_schema_migrations").await, 1, "nothing was applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_output_nobody_reads_ends_without_a_panic() {
    let system = TestSystem::shared().await;
    let unread = || std::io::pipe().unwrap().1;
    let start = |arguments: &[&str]| command("webhookctl", &system.variables, arguments);
    let tenant = Uuid::new_v4().to_string();
    let commands = [
        &["doctor", "--json"][..],
        &["doctor"],
        &["keys", "list"],
        &["keys", "reseal"],
        &["migrate"],
        &["session", "create", "--tenant", &tenant],
        &["publish", "quote.closed", "--tenant", &tenant, "--dry-run"],
    ];
    for arguments in commands {
        let child = start(arguments).stdout(unread()).stderr(Stdio::piped()).spawn().unwrap();
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.expect("it ends").unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(141), ""), "{arguments:?}");
    }
    let status = start(&["health", "http://127.0.0.1:1/"]).stderr(unread()).status().await.unwrap();
    assert_eq!(status.code(), Some(1), "the error is not read");
}

/// Locks the list of migrations: nobody reads it until the returned session is dropped.
async fn hold_the_list_of_migrations(system: &System) -> tokio_postgres::Client {
    let table = "CREATE TABLE __diesel_schema_migrations (version varchar(50) PRIMARY KEY, run_on timestamp NOT NULL DEFAULT now())";
    system.database_session(&format!("{table}; BEGIN; LOCK TABLE __diesel_schema_migrations")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_at_the_same_time_apply_once_and_nothing_works_before() {
    let system = TestSystem::prepared(Options::default()).await;
    system.sql("DROP SCHEMA public CASCADE").await;
    system.sql("CREATE SCHEMA public").await;
    let tenant = Uuid::new_v4().to_string();
    let create = ["session", "create", "--tenant", &tenant];
    let early = webhookctl(&system.variables, &create).await;
    assert_eq!((early.code, early.out.as_str()), (1, ""));
    assert!(early.err.contains("webhookctl migrate") && early.err.contains("too old"), "{}", early.err);
    let hold = hold_the_list_of_migrations(&system).await;
    let migrate = || done(&system.variables, &["migrate"]);
    let release = async {
        system.wait_for_locked_out(1).await;
        let all = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND application_name = 'webhookctl'";
        system.until_count(all, 4, SOON).await;
        drop(hold);
    };
    let (one, two, three, four, ()) = tokio::join!(migrate(), migrate(), migrate(), migrate(), release);
    let said = [one, two, three, four];
    let applies = |said: &&String| said.starts_with("applied ") && said.contains("migration(s): ");
    assert_eq!(said.iter().filter(applies).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "the schema is current\n").count(), 3, "{said:?}");
    let days = "SELECT count(*) FROM pg_class WHERE relname ~ '^(events|deliveries|attempts)_2[0-9]{7}$'";
    assert_eq!(system.count(days).await, 30, "ten days' partitions of three tables");
    done(&system.variables, &create).await;
    system.start(Service::Ingest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_check_needs_no_settings_and_tells_by_its_exit_code() {
    let system = TestSystem::prepared(Options::default()).await;
    let ops = system.start(Service::Ingest).await;
    let health = async |path: &str| {
        let url = format!("http://{ops}{path}");
        webhookctl(&HashMap::new(), &["health", &url, "--timeout", "2s"]).await
    };
    let well = health("/readyz").await;
    assert_eq!((well.code, well.err.as_str()), (0, ""));
    assert!(well.out.starts_with("200 {") && well.out.ends_with("}\n"), "{}", well.out);
    let wrong = health("/nothing").await;
    assert_eq!((wrong.code, wrong.out.as_str(), wrong.err.as_str()), (1, "404 not found\n", ""));

    system.stop(Service::Ingest).await;
    let away = health("/readyz").await;
    assert_eq!((away.code, away.out.as_str()), (1, ""));
    assert!(away.err.contains(&format!("webhookctl: http://{ops}/readyz: the request failed")), "{}", away.err);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/readyz", silent.local_addr().unwrap());
    let late = webhookctl(&HashMap::new(), &["health", &url, "--timeout", "50ms"]).await;
    assert_eq!((late.code, late.err.lines().count()), (1, 1), "{}", late.err);
    assert!(late.err.contains("no answer within 50ms"), "{}", late.err);
}

#[tokio::test]
async fn arguments_that_cannot_be_used_end_every_command_with_the_code_of_usage() {
    let tenant = Uuid::nil().to_string();
    let listen = ["listen", "--listen", "127.0.0.1:0", "--authority", "/nowhere/to/be/made"];
    for (arguments, said) in [
        (vec![], "Usage: webhookctl"),
        (vec!["nonsense"], "nonsense"),
        (vec!["doctor", "nonsense"], "nonsense"),
        (vec!["health"], "<URL>"),
        (vec!["health", "nonsense"], "not an absolute URL of http or https"),
        (vec!["health", "127.0.0.1:9081/readyz"], "not an absolute URL of http or https"),
        (vec!["health", "http://127.0.0.1:1/", "--timeout", "soon"], "--timeout"),
        (vec!["migrate", "nonsense"], "nonsense"),
        (vec!["session", "create", "--tenant", "acme"], "--tenant"),
        (vec!["session", "create", "--tenant", &tenant, "--role", "viewer"], "[possible values: admin]"),
        (vec!["migrate", "--to"], "--to <RELEASE>"),
        (vec!["rejected", "list", "--limit", "all"], "--limit"),
        (vec!["dead", "nonsense"], "nonsense"),
        (vec!["keys", "nonsense"], "nonsense"),
        (vec!["tenant", "stop", "acme"], "<TENANT>"),
        (vec!["tenant", "erase", &tenant, "--yes", "--dry-run"], "--dry-run"),
        ([&listen[..], &["--forward", "nonsense"]].concat(), "not an absolute URL of http or https"),
        ([&listen[..], &["--register", "--tenant", &tenant, "--api", "nonsense"]].concat(), "not an absolute URL"),
        ([&listen[..], &["--host", "no host"]].concat(), "not the name of a host"),
        (vec!["publish"], "EVENT_TYPE"),
        (vec!["publish", "quote.reopened"], "unknown event type"),
    ] {
        let ran = webhookctl(&HashMap::new(), &arguments).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {said:?} in {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_created_works_until_it_expires() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4().to_string();
    let anonymous = system.anonymous().await;
    let create = async |more: &[&str]| {
        let arguments = [&["session", "create", "--tenant", &tenant], more].concat();
        let out = done(&system.variables, &arguments).await;
        let id = out.strip_suffix('\n').unwrap().to_owned();
        assert!(id.len() == 64 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{out}");
        Api { session: Some(id), ..anonymous.clone() }
    };
    let webhooks = async |api: &Api| api.get("/api/v1/webhooks/").await.status;

    let admin = create(&[]).await;
    admin.create("https://example.com/hook", &["quote.closed"]).await;
    assert_eq!(webhooks(&create(&["--role", "admin", "--user", "eve"]).await).await, 200);
    let short = create(&["--ttl", "1s"]).await;
    until("the session expires", SOON, || async { webhooks(&short).await == 401 }).await;
    assert_eq!(webhooks(&admin).await, 200);

    // The command reckons from its start, and a slow machine stores a session seconds later.
    let lasting = "SELECT extract(epoch FROM expires_at - created_at)::float8 FROM admin_sessions";
    let lasting = system.sql(&format!("{lasting} WHERE tenant_id = '{tenant}' ORDER BY 1")).await;
    let lasting: Vec<f64> = lasting.iter().map(|row| row.get(0)).collect();
    assert_eq!(lasting.len(), 3);
    for (lasting, wanted) in lasting.iter().zip([1.0, 43_200.0, 43_200.0]) {
        assert!((wanted - 30.0..=wanted).contains(lasting), "{lasting} s of {wanted} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_to_the_console_is_for_development_only_and_expires() {
    let system = TestSystem::shared().await;
    let anonymous = system.anonymous().await;
    let tenant = Uuid::new_v4().to_string();
    let link = ["session", "link", "--tenant", &tenant];
    for (name, value, said) in [
        ("CONSOLE__ENABLED", "false", "console.enabled (WEBHOOKS__CONSOLE__ENABLED): is false"),
        ("CONSOLE__LOGIN_URL", "https://app.example.com/", "console.login_url (WEBHOOKS__CONSOLE__LOGIN_URL): is set"),
        ("API__SESSIONS", "introspection", "api.sessions (WEBHOOKS__API__SESSIONS): is introspection"),
    ] {
        let ran = webhookctl(&system.with(&[(name, value)]), &link).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    let public = system.with(&[("CONSOLE__PUBLIC_URL", "https://hooks.example.com/")]);
    let said = done(&public, &link).await;
    let code = said.strip_prefix("https://hooks.example.com/console/login/?code=").unwrap().trim_end();
    assert!(code.len() == 64 && said.ends_with('\n'), "{said}");
    let short = done(&public, &[&link[..], &["--ttl", "1s"]].concat()).await;
    let log_in = async |code: &str| {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        anonymous.send("POST", "/console/login/", &form, format!("code={code}")).await.status
    };
    eventually("the short link expires", SOON, || async {
        let left = format!("SELECT count(*) FROM admin_sessions WHERE tenant_id = '{tenant}' AND expires_at > now()");
        (system.count(&left).await == 1).then_some(())
    })
    .await;
    assert_eq!(log_in(short.trim_end().rsplit('=').next().unwrap()).await, 403);
    assert_eq!((log_in(code).await, log_in(code).await), (303, 403));
}

const MAX_DATA_BYTES: usize = 300;

fn listed(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Publishes unusable messages one after another, so that they are parked in this order.
async fn park(system: &System, bodies: &[&[u8]]) {
    for (count, body) in (1..).zip(bodies) {
        system.upstream.publish_raw("quote.closed", body).await;
        let parked = async || (system.upstream.ready(&system.names.rejected()).await == count).then_some(());
        eventually("it is parked", SOON, parked).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_messages_on_a_parked_queue_are_listed_and_discarded_and_a_silent_broker_ends_each_command() {
    let system = TestSystem::prepared(Options::default()).await;
    system.start(Service::Ingest).await;
    let (names, properties) = (&system.names, OddProperties::text(7, b"\xff\xfe"));
    let mut publisher = OddPublisher::connect(&system.amqp_url);
    for queue in [names.rejected(), names.unreadable(), names.dead()] {
        publisher.publish(&names.exchange(), queue.as_bytes(), &properties, b"odd message");
    }
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let mut variables = system.variables.clone();
    variables.insert("WEBHOOKS__BROKER__URL".to_owned(), url);
    proxy.set(Mode::HoldAt("odd message"));
    let list = ["rejected", "list"];
    let ran = webhookctl(&variables, &list).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("webhookctl doctor"), "{}", ran.err);
    for subject in ["rejected", "dead"] {
        let listed = listed(&done(&system.variables, &[subject, "list"]).await);
        assert_eq!((listed.len(), listed[0]["body"].as_str()), (1, Some("odd message")), "{subject}");
    }
    let list = ["rejected", "list", "--unreadable"];
    proxy.set(Mode::EndAt("odd message"));
    let ran = webhookctl(&variables, &list).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    for words in ["cannot read this message", "look at the queue", &format!("purge_queue {}", names.unreadable())] {
        assert!(ran.err.contains(words), "{words:?} is missing in: {}", ran.err);
    }
    system.upstream.wait_ready(&names.unreadable(), 1, SOON).await;
    assert_eq!(listed(&done(&system.variables, &list).await)[0]["body"], "odd message");
    system.upstream.wait_ready(&names.unreadable(), 1, SOON).await;
    let requeued = done(&system.variables, &["rejected", "requeue", "--unreadable"]).await;
    assert_eq!(requeued, "handed 1 event(s) to ingest again\n");
    system.upstream.wait_ready(&names.rejected(), 2, SOON).await;
    assert_eq!(system.upstream.ready(&names.unreadable()).await, 0);
}

fn large_data() -> String {
    format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_DATA_BYTES))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requeued_event_is_delivered_with_its_trace_if_it_became_usable_and_else_comes_back_once() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, names, broker) = (Uuid::new_v4(), &system.names, &system.upstream);
    system.start(Service::Api).await;
    system.start(Service::Dispatcher).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
    let mut narrow = system.variables.clone();
    narrow.insert("WEBHOOKS__LIMITS__EVENT_DATA_BYTES".to_owned(), MAX_DATA_BYTES.to_string());
    system.start_with(Service::Ingest, Settings::from_sources(None, narrow).unwrap()).await;
    let large = Event::now(EventType::QuoteClosed, tenant).with_data(large_data());
    park(&system, &[b"bad", b"\xff"]).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [("traceparent", AMQPValue::LongString(trace.into())), ("other", AMQPValue::Boolean(true))];
    broker.publish_with("quote.closed", &large.to_message(), &headers).await;
    broker.wait_ready(&names.rejected(), 3, SOON).await;
    assert_eq!(listed(&done(&system.variables, &["rejected", "list"]).await)[2]["traceparent"], trace);
    let requeue = async |more: &[&str]| done(&system.variables, &[&["rejected", "requeue"], more].concat()).await;

    system.stop(Service::Ingest).await;
    assert_eq!(requeue(&[]).await, "handed 3 event(s) to ingest again\n");
    assert_eq!((broker.ready(&names.events()).await, broker.ready(&names.rejected()).await), (3, 0));
    let ops = system.start(Service::Ingest).await;
    let received = receiver.wait_for(1, SOON).await.remove(0);
    verify(&received, &webhook.secret).unwrap();
    assert!(String::from_utf8_lossy(&received.body).contains(&large.data));
    assert_eq!(system.count(&format!("SELECT count(*) FROM events WHERE traceparent = '{trace}'")).await, 1);
    let rejected = async |count: u32| {
        let what = format!("{count} were refused, and two of them are there");
        let settled = || async {
            let refused = metric(ops, r#"webhooks_ingest_events_total{outcome="rejected"}"#).await;
            let there = broker.ready(&names.rejected()).await;
            assert!(refused <= f64::from(count), "{refused}");
            (refused == f64::from(count) && there == 2).then_some(())
        };
        eventually(&what, SOON, settled).await;
    };
    rejected(2).await;

    assert_eq!(requeue(&[]).await, "handed 2 event(s) to ingest again\n");
    rejected(4).await;
    assert_eq!(requeue(&["--limit", "1"]).await, "handed 1 event(s) to ingest again\n");
    rejected(5).await;
    assert_eq!(broker.ready(&names.events()).await, 0);
    let bodies: Vec<_> = listed(&done(&system.variables, &["rejected", "list"]).await);
    assert!(bodies.iter().any(|line| line["body"] == "bad") && bodies.iter().any(|line| line["body_hex"] == "ff"));
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_parked_is_listed_with_its_reason() {
    let system = TestSystem::prepared(Options::default()).await;
    let (names, broker) = (&system.names, &system.upstream);
    done(&system.variables, &["dead", "list"]).await;
    let job = format!(r#"{{"v":1,"delivery_id":"{}","attempt":3}}"#, Uuid::now_v7());
    for (parked, body, command) in [(names.rejected(), "no event", "rejected"), (names.dead(), job.as_str(), "dead")] {
        let queue = format!("{parked}.expiring");
        broker.declare_expiring_queue(&queue, &names.exchange(), &parked).await;
        broker.publish_to("", &queue, body.as_bytes()).await;
        broker.wait_ready(&parked, 1, SOON).await;
        let lines = listed(&done(&system.variables, &[command, "list"]).await);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((&line["reason"], &line["body"]), (&"expired".into(), &body.into()), "{line}");
        assert!(line["detail"].as_str().unwrap().contains(&format!("expired on {queue}")), "{line}");
        if command == "rejected" {
            assert_eq!(line["routing_key"], queue.as_str());
            assert!(line["rejected_at"].as_str().unwrap().ends_with('Z'), "{line}");
        } else {
            assert_eq!(line["attempt"], 3, "{line}");
        }
    }
}

const PASSWORD: &str = "pa55-never-shown";

fn with_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (login, server) = rest.split_once('@').unwrap();
    let (user, _) = login.split_once(':').unwrap();
    format!("{scheme}://{user}:{PASSWORD}@{server}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_events_are_listed_in_order_and_discarded_by_reason_once_they_were_shown() {
    let system = TestSystem::prepared(Options::default()).await;
    system.start(Service::Ingest).await;
    park(&system, &[b"one", "two \u{9b}2J".as_bytes(), b"three \x9b2J"]).await;
    let properties = BasicProperties::default().with_content_encoding("gzip".into());
    system.upstream.publish_described("quote.closed", &[0x1f, 0x8b, 8], properties).await;
    system.upstream.wait_ready(&system.names.rejected(), 4, SOON).await;
    let variables = &system.variables;
    let lines = listed(&done(variables, &["rejected", "list"]).await);
    for limit in [2, 1, 4] {
        let some = done(variables, &["rejected", "list", "--limit", &limit.to_string()]).await;
        assert_eq!(listed(&some), lines[..limit], "in order, and they stay");
    }
    for line in &lines {
        assert_eq!(line["routing_key"], "quote.closed");
        assert!(line["rejected_at"].as_str().unwrap().ends_with('Z'));
    }
    let encoded = &lines[3];
    assert_eq!((&encoded["reason"], &encoded["body_hex"]), (&"content_encoding".into(), &"1f8b08".into()));
    assert!(encoded["detail"].as_str().unwrap().contains("content_encoding is \"gzip\""), "{encoded}");
    let parked = "parked: 4: 1 content_encoding, 3 malformed_json; to discard: ";

    let malformed = ["rejected", "discard", "--reason", "malformed_json"];
    let asked = webhookctl(variables, &malformed).await;
    assert_eq!(asked.code, 1);
    assert!(asked.err.contains("nothing was changed: run the command again with --yes"), "{}", asked.err);
    let (first, rest) = asked.out.split_once('\n').unwrap();
    assert_eq!(first, format!("{parked}3"));
    assert_eq!(listed(rest), lines[..3], "as they are listed");
    assert!(rest.contains("two \\u009b2J") && !rest.contains('\u{9b}'), "{rest}");
    assert!(rest.contains(&hex::encode(b"three \x9b2J")), "{rest}");
    let none = done(variables, &["rejected", "discard", "--reason", "of_tomorrow"]).await;
    assert_eq!(none, format!("{parked}0\ndiscarded 0 event(s)\n"));

    let gone = done(variables, &[&malformed[..], &["--limit", "2", "--yes"]].concat()).await;
    assert!(gone.starts_with(&format!("{parked}2; beyond the limit: 1 more\n")), "{gone}");
    assert!(gone.contains("one") && gone.ends_with("discarded 2 event(s)\n"), "{gone}");
    assert_eq!(listed(&done(variables, &["rejected", "list"]).await), lines[2..], "the others are still there");
    assert!(done(variables, &["rejected", "discard", "--yes"]).await.ends_with("discarded 2 event(s)\n"));
    assert_eq!(done(variables, &["rejected", "list"]).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_another_shape_is_named_and_is_no_broker_that_cannot_be_reached() {
    let system = TestSystem::prepared(Options::default()).await;
    let (dead, options) = (system.names.dead(), QueueDeclareOptions { durable: true, ..Default::default() });
    let connection = Connection::connect(&system.amqp_url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.queue_declare(dead.as_str().into(), options, FieldTable::default()).await.unwrap();
    let ran = webhookctl(&system.variables, &["dead", "list"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    for words in ["declared differently", "PRECONDITION_FAILED", &dead, "webhookctl doctor"] {
        assert!(ran.err.contains(words), "{words:?} is missing in: {}", ran.err);
    }
    assert!(!ran.err.contains("broker.url"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_or_refuses_is_named_and_its_password_is_not() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4().to_string();
    let create: &[&str] = &["session", "create", "--tenant", &tenant];
    let (migrate, list, requeue): (&[&str], &[&str], &[&str]) =
        (&["migrate"], &["rejected", "list"], &["rejected", "requeue"]);
    for (scheme, name, commands, real) in [
        ("postgres", "database", [migrate, create], &system.database_url),
        ("amqp", "broker", [list, requeue], &system.amqp_url),
    ] {
        let away = format!("{scheme}://user:{PASSWORD}@127.0.0.1:1/name");
        let unknown = format!("{scheme}://user:{PASSWORD}@no-such-host.invalid/name");
        let malformed = format!("{scheme}://user:{PASSWORD}@127.0.0.1:port/name");
        for (url, code) in [
            (away, 1),
            (unknown, 1),
            (with_password(real), 1),
            (malformed, 2),
            (PASSWORD.to_owned(), 2),
            (String::new(), 2),
        ] {
            let mut variables = system.variables.clone();
            let variable = format!("WEBHOOKS__{}__URL", name.to_uppercase());
            variables.insert(variable.clone(), url.clone());
            for command in commands {
                let ran = webhookctl(&variables, command).await;
                assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{command:?} {url}: {}", ran.err);
                let begin = format!("webhookctl: {name}.url ({variable}): ");
                let error = ran.err.lines().last().unwrap_or_default();
                assert!(error.starts_with(&begin), "{url}: {}", ran.err);
                assert!(!ran.err.contains(PASSWORD), "{}", ran.err);
                // Another host without TLS is warned of as well.
                let lines = if url.contains("no-such-host") { 2 } else { 1 };
                assert_eq!(ran.err.lines().count(), lines, "{}", ran.err);
            }
        }
    }
}
