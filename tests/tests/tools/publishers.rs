//! The publishers that we hand out (`proto-schemas/publishers`), from the transaction of a business change to the
//! delivery.
#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../../proto-schemas/publishers/publisher.rs"]
mod rust;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use domain::EventType;
use end_to_end::{
    events::Event,
    proxy::{Mode, Proxy},
    receiver::{always, verify},
    servers::{repository, stack_folder},
    system::{Options, Subscriber, System, TestSystem},
    tools::Tool,
    wait::{SOON, eventually, until},
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
};
use uuid::Uuid;

/// The folder of the libraries.
fn libraries() -> PathBuf {
    stack_folder().join("receivers")
}

/// A program and what runs it.
struct Program {
    interpreter: PathBuf,
    file: &'static str,
    tool: Tool,
    /// The options for a script, and one that closes two quotes, each with its event, and commits the first alone.
    business: (&'static [&'static str], &'static str),
}

const PYTHON: &str = "
import os, psycopg
from publisher import Invalid, store
with psycopg.connect(os.environ['DATABASE_URL']) as connection:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(\"UPDATE quotes SET state = 'closed' WHERE id = 1\")
        store(cursor, os.environ['COMMITTED'])
        store(cursor, os.environ['COMMITTED'])
    for refused in [os.environ['COMMITTED'] + ' ', '{}']:
        try:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(\"UPDATE quotes SET state = 'closed' WHERE id = 2\")
                store(cursor, os.environ['ROLLED_BACK'])
                store(cursor, refused)
        except Invalid as error:
            print('rolled back:', error)
";
const NODE: &str = "
import pg from 'pg';
import { Invalid, store } from './publisher.mjs';
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query('BEGIN');
await client.query(\"UPDATE quotes SET state = 'closed' WHERE id = 1\");
await store(client, process.env.COMMITTED);
await store(client, process.env.COMMITTED);
await client.query('COMMIT');
for (const refused of [`${process.env.COMMITTED} `, '{}']) {
  try {
    await client.query('BEGIN');
    await client.query(\"UPDATE quotes SET state = 'closed' WHERE id = 2\");
    await store(client, process.env.ROLLED_BACK);
    await store(client, refused);
  } catch (error) {
    await client.query('ROLLBACK');
    if (!(error instanceof Invalid)) throw error;
    console.log('rolled back:', error.message);
  }
}
await client.end();
";

/// The programs, without those that `SKIP` leaves out.
fn programs() -> Vec<Program> {
    let python = Program {
        interpreter: libraries().join("venv/bin/python"),
        file: "publisher.py",
        tool: Tool::Python,
        business: (&["-c"], PYTHON),
    };
    let node = Program {
        interpreter: "node".into(),
        file: "publisher.mjs",
        tool: Tool::Node,
        business: (&["--input-type=module", "-e"], NODE),
    };
    [python, node].into_iter().filter(|program| program.tool.is_used()).collect()
}

/// A folder below the libraries, where Node looks for them. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn with(file: &str) -> Self {
        let folder = libraries().join(format!("test-{}", Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = repository().join("proto-schemas/publishers").join(file);
        std::fs::copy(source, folder.join(file)).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Program {
    /// A command in its folder, with the addresses of this system.
    fn command(&self, system: &System, folder: &Path) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.current_dir(folder).env("AMQP_URL", &system.amqp_url).env("DATABASE_URL", &system.database_url);
        command.env("EVENTS_EXCHANGE", &system.names.events_exchange).env("PATIENCE", "1");
        command.env("EVENT_SCHEMA", repository().join("proto-schemas/event.schema.json"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        command
    }

    /// Publishes one event by hand. Returns the exit code and what it says.
    async fn publish(&self, mut command: Command, event: &str) -> (i32, String) {
        command.args([self.file, "publish"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(event.as_bytes()).await.unwrap();
        drop(input);
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), said)
    }

    /// Runs the business change that commits and the one that does not.
    async fn do_business(&self, mut command: Command, committed: &str, rolled_back: &str) {
        let (option, script) = self.business;
        command.args(option).arg(script);
        let output = command.env("COMMITTED", committed).env("ROLLED_BACK", rolled_back).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.matches("rolled back: ").count() == 2, "{said}");
        assert!(said.contains("event_id: another event has"), "{said}");
    }

    fn relay(&self, mut command: Command) -> Child {
        command.args([self.file, "relay"]).stdin(Stdio::null()).spawn().unwrap()
    }
}

fn text(event: &Event) -> String {
    String::from_utf8(event.to_message()).unwrap()
}

async fn make_tables(system: &System) {
    let outbox = std::fs::read_to_string(repository().join("proto-schemas/publishers/outbox.sql")).unwrap();
    for statement in outbox.split_inclusive(";\n") {
        system.sql(statement.trim().trim_end_matches(';')).await;
    }
    system.sql("CREATE TABLE quotes AS SELECT id, 'open' AS state FROM generate_series(1, 2) AS id").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_publishes_an_event_once_and_refuses_what_is_none() {
    for program in programs() {
        let name = program.file;
        let system = TestSystem::shared().await;
        let folder = Folder::with(name);
        let run = || program.command(&system, &folder.0);
        let Subscriber { tenant, receiver, secret, .. } = system.subscriber(always(200)).await;
        let event = text(&Event::now(EventType::QuoteClosed, tenant).with_data(r#"{"total":1.10}"#));

        for _ in 0..2 {
            let (code, said) = program.publish(run(), &event).await;
            assert_eq!(code, 0, "{name}: {said}");
            assert!(said.starts_with("confirmed "), "{name}: {said}");
        }
        for (bad, fault) in [
            ("{".to_owned(), "not JSON"),
            (event.replace("\"event_id\":\"", "\"event_id\":\"x"), "event_id"),
            (event.replace("quote.closed", "quote.reopened"), "event_type"),
            (event.replace("\"timestamp\":\"", "\"timestamp\":\"at "), "timestamp"),
            (event.replace("\"data\"", "\"date\""), "data"),
            // What Python's own `json.dumps` writes. The service refuses it.
            (event.replace("1.10", "NaN"), "not JSON"),
        ] {
            let (code, said) = program.publish(run(), &bad).await;
            assert!(code == 2 && said.contains(fault), "{name}: {bad}: {code} {said}");
        }
        let mut unroutable = run();
        unroutable.env("EVENTS_EXCHANGE", "amq.topic");
        let (code, said) = program.publish(unroutable, &event).await;
        assert!(code == 1 && said.contains("not confirmed within 1 s"), "{name}: {code} {said}");
        let mut nowhere = run();
        nowhere.env("EVENTS_EXCHANGE", "nowhere");
        let (code, said) = program.publish(nowhere, &event).await;
        assert!(code == 1 && said.contains("no exchange 'nowhere'"), "{name}: {code} {said}");
        let mut away = run();
        away.env("AMQP_URL", "amqp://127.0.0.1:1");
        let (code, said) = program.publish(away, &event).await;
        assert!(code == 1 && said.contains("not confirmed within 1 s"), "{name}: {code} {said}");

        let last = Event::now(EventType::QuoteClosed, tenant);
        assert_eq!(program.publish(run(), &text(&last)).await.0, 0, "{name}");
        let received = receiver.wait_for(2, SOON).await;
        for one in &received {
            verify(one, &secret).unwrap();
        }
        assert!(received[0].body.ends_with(br#""data":{"total":1.10}}"#), "{name}: byte for byte");
        let stored = format!("SELECT count(*) FROM events WHERE tenant_id = '{tenant}'");
        assert_eq!(system.count(&stored).await, 2, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_events_delivery_comes_and_a_rolled_back_one_leaves_no_trace() {
    for program in programs() {
        let name = program.file;
        let system = TestSystem::running(Options::default()).await;
        let folder = Folder::with(name);
        let run = || program.command(&system, &folder.0);
        make_tables(&system).await;
        let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
        let [committed, rolled_back] = [0, 1].map(|_| Event::now(EventType::QuoteClosed, tenant));

        program.do_business(run(), &text(&committed), &text(&rolled_back)).await;
        let deep = format!("{{\"by\": {}{}}}", "[".repeat(3000), "]".repeat(3000));
        for by_hand in ["{\"by\": \"hand\"}", &deep] {
            system.sql(&format!("INSERT INTO outbox (event_id, event) VALUES (gen_random_uuid(), '{by_hand}')")).await;
        }
        let others = text(&Event::now(EventType::ReturnNoteCreated, Uuid::new_v4()));
        system
            .sql(&format!(
                "INSERT INTO outbox (event_id, event) SELECT gen_random_uuid(), '{others}' FROM generate_series(1, 40)"
            ))
            .await;
        let warnings = folder.0.join("warnings");
        let relay = || {
            let mut command = run();
            command.env("NODE_REDIRECT_WARNINGS", &warnings);
            program.relay(command)
        };
        let relays = [relay(), relay()];
        receiver.wait_for(1, SOON).await;
        until("the relays have marked all", SOON, || async {
            let open = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND fault IS NULL";
            system.count(open).await == 0
        })
        .await;
        assert_eq!(system.count("SELECT count(*) FROM outbox WHERE fault IS NOT NULL").await, 2, "{name}");

        program.do_business(run(), &text(&Event::now(EventType::QuoteClosed, tenant)), &text(&rolled_back)).await;
        receiver.wait_for(2, SOON).await;
        for mut relay in relays {
            let pid = relay.id().unwrap().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
            let status = tokio::time::timeout(SOON, relay.wait()).await.unwrap().unwrap();
            assert!(status.success(), "{name} ends in order");
        }
        let said = std::fs::read_to_string(&warnings).unwrap_or_default();
        assert_eq!(said, "", "{name} warns");
        let stored = system.sql("SELECT id::text FROM events WHERE event_type = 'quote.closed'").await;
        let ids: Vec<Uuid> = stored.iter().map(|row| row.get::<_, &str>(0).parse().unwrap()).collect();
        assert!(ids.len() == 2 && ids.contains(&committed.id) && !ids.contains(&rolled_back.id), "{name}: {ids:?}");
    }
}

/// The broker falls silent, an event is stored, and the connection breaks before its confirm: then it comes later. `proxy`
/// is between the relay and the broker.
async fn comes_although_the_connection_breaks(system: &System, name: &str, proxy: &Proxy) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    let store = async || {
        let event = text(&Event::now(EventType::QuoteClosed, tenant));
        system.sql(&format!("INSERT INTO outbox (event_id, event) VALUES (gen_random_uuid(), '{event}')")).await;
    };
    store().await;
    receiver.wait_for(1, SOON).await;

    proxy.set(Mode::Stall);
    store().await;
    until(&format!("{name} has taken the event"), SOON, || async {
        let free = "SELECT position FROM outbox WHERE published_at IS NULL FOR UPDATE SKIP LOCKED";
        system.sql(free).await.is_empty()
    })
    .await;
    proxy.set(Mode::Refuse);
    proxy.set(Mode::Pass);
    receiver.wait_for(2, SOON).await;
    until(&format!("{name} has marked the event"), SOON, || async {
        system.count("SELECT count(*) FROM outbox WHERE published_at IS NULL").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_confirm_never_came_is_published_again() {
    for program in programs() {
        let system = TestSystem::running(Options::default()).await;
        make_tables(&system).await;
        let (proxy, through) = Proxy::before(&system.amqp_url);
        let folder = Folder::with(program.file);
        let mut command = program.command(&system, &folder.0);
        command.env("AMQP_URL", through);
        let _relay = program.relay(command);
        comes_although_the_connection_breaks(&system, program.file, &proxy).await;
    }
    let system = TestSystem::running(Options::default()).await;
    make_tables(&system).await;
    let (proxy, amqp_url) = Proxy::before(&system.amqp_url);
    let outbox = rust::Outbox { amqp_url, ..rust_outbox(&system, system.names.events_exchange.clone()) };
    tokio::select! {
        () = outbox.relay() => {}
        () = comes_although_the_connection_breaks(&system, "publisher.rs", &proxy) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_holds_no_rows_for_long_while_the_broker_is_silent() {
    for program in programs() {
        let name = program.file;
        let system = TestSystem::running(Options::default()).await;
        make_tables(&system).await;
        let (proxy, through) = Proxy::before(&system.amqp_url);
        let folder = Folder::with(name);
        let mut command = program.command(&system, &folder.0);
        command.env("AMQP_URL", through);
        let _relay = program.relay(command);
        let store = async || {
            let event = text(&Event::now(EventType::QuoteClosed, Uuid::new_v4()));
            system.sql(&format!("INSERT INTO outbox (event_id, event) VALUES (gen_random_uuid(), '{event}')")).await;
        };
        let left = async || system.count("SELECT count(*) FROM outbox WHERE published_at IS NULL").await;
        store().await;
        until("the relay works", SOON, || async { left().await == 0 }).await;

        // As a broker without memory or disk does.
        proxy.set(Mode::Stall);
        store().await;
        let free = "SELECT position FROM outbox WHERE published_at IS NULL FOR UPDATE SKIP LOCKED";
        let is_taken = || async { system.sql(free).await.is_empty().then_some(()) };
        eventually(&format!("{name} has taken the event"), SOON, is_taken).await;
        let is_free = || async { (!system.sql(free).await.is_empty()).then_some(()) };
        eventually(&format!("{name} lets go of the event"), SOON * 2, is_free).await;
        proxy.set(Mode::Pass);
        until(&format!("{name} publishes it later"), SOON, || async { left().await == 0 }).await;
    }
}

/// An exchange and a queue of one's own, which gets the events of the types that it is bound to.
struct Own {
    channel: lapin::Channel,
    exchange: String,
    queue: String,
    _connection: lapin::Connection,
}

impl Own {
    async fn declare(system: &System) -> Self {
        let connection = lapin::Connection::connect(&system.amqp_url, lapin::ConnectionProperties::default());
        let connection = connection.await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let (exchange, table) = (format!("own-{}", Uuid::new_v4()), lapin::types::FieldTable::default);
        let declare = lapin::options::ExchangeDeclareOptions { durable: true, auto_delete: true, ..Default::default() };
        channel.exchange_declare(exchange.as_str().into(), lapin::ExchangeKind::Topic, declare, table()).await.unwrap();
        let own = lapin::options::QueueDeclareOptions { exclusive: true, ..Default::default() };
        let queue = channel.queue_declare("".into(), own, table()).await.unwrap().name().to_string();
        let own = Self { channel, exchange, queue, _connection: connection };
        own.bind("quote.closed").await;
        own
    }

    /// Has the queue get the events of a type, too.
    async fn bind(&self, event_type: &str) {
        let (options, table) = (lapin::options::QueueBindOptions::default(), lapin::types::FieldTable::default());
        let bound = self.channel.queue_bind(
            self.queue.as_str().into(),
            self.exchange.as_str().into(),
            event_type.into(),
            options,
            table,
        );
        bound.await.unwrap();
    }

    /// The next message, once it is there.
    async fn next(&self, what: &str) -> Vec<u8> {
        let get = async || {
            let options = lapin::options::BasicGetOptions { no_ack: true };
            let got = self.channel.basic_get(self.queue.as_str().into(), options).await.unwrap();
            got.map(|got| got.delivery.data)
        };
        eventually(what, SOON, get).await
    }

    /// Stores events for a relay that publishes to the exchange. Those that come back hold up no other.
    async fn gets_what_it_takes(&self, system: &System, name: &str) {
        let store = async |types: &[EventType]| {
            let row = |event_type: &EventType| text(&Event::now(*event_type, Uuid::new_v4()));
            let rows: Vec<_> = types.iter().map(|one| format!("(gen_random_uuid(), '{}')", row(one))).collect();
            system.sql(&format!("INSERT INTO outbox (event_id, event) VALUES {}", rows.join(", "))).await;
        };
        let are = async |what: &str, expected: i64| {
            let count = format!("SELECT count(*) FROM outbox WHERE {what}");
            let are = async || (system.count(&count).await == expected).then_some(());
            eventually(&format!("{name}: {expected} rows where {what}"), SOON, are).await;
        };
        store(&[EventType::QuoteClosed]).await;
        let message = self.next("the message arrives").await;
        let schema = std::fs::read(repository().join("proto-schemas/event.schema.json")).unwrap();
        let validator = rust::validator(&serde_json::from_slice(&schema).unwrap()).unwrap();
        assert!(validator.is_valid(&serde_json::from_slice(&message).unwrap()));
        are("published_at IS NOT NULL", 1).await;

        // As many come back as a batch has.
        store(&[EventType::QuoteAccepted; 100]).await;
        store(&[EventType::QuoteClosed]).await;
        self.next("the event behind those that come back").await;
        are("published_at IS NOT NULL", 2).await;
        are("returned_at IS NOT NULL AND event LIKE '%quote.accepted%'", 100).await;
        // In one batch with an event that comes back.
        store(&[EventType::QuoteAccepted, EventType::QuoteClosed]).await;
        self.next("the event beside one that comes back").await;
        are("published_at IS NOT NULL", 3).await;
        are("published_at IS NULL AND returned_at IS NOT NULL AND fault IS NULL", 101).await;
        // They are published once a queue takes them, a minute after they came back.
        self.bind("quote.accepted").await;
        let a_minute_later = "UPDATE outbox SET returned_at = returned_at - interval '2 minutes'";
        system.sql(a_minute_later).await;
        are("published_at IS NULL", 0).await;

        // After ten tries an event is set aside, until somebody puts it back.
        store(&[EventType::QuoteCancelled]).await;
        for tries in 1..10 {
            are(&format!("returns = {tries} AND fault IS NULL AND event LIKE '%quote.cancelled%'"), 1).await;
            system.sql(a_minute_later).await;
        }
        are("fault = 'no queue took it, 10 times'", 1).await;
        self.bind("quote.cancelled").await;
        system.sql(a_minute_later).await;
        store(&[EventType::QuoteClosed]).await;
        are("published_at IS NULL AND returns = 10", 1).await;
        are("published_at IS NULL", 1).await;
        system.sql("UPDATE outbox SET fault = NULL, returns = 0 WHERE fault LIKE 'no queue%'").await;
        are("published_at IS NULL", 0).await;
    }
}

/// As the page says: an exchange and a queue of one's own are enough, without the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_service_a_queue_of_ones_own_gets_its_events_and_those_that_come_back_hold_up_none() {
    for program in programs() {
        let system = TestSystem::prepared(Options::default()).await;
        make_tables(&system).await;
        let (own, folder) = (Own::declare(&system).await, Folder::with(program.file));
        let mut command = program.command(&system, &folder.0);
        command.env("EVENTS_EXCHANGE", &own.exchange);
        let _relay = program.relay(command);
        own.gets_what_it_takes(&system, program.file).await;
    }
    let system = TestSystem::prepared(Options::default()).await;
    make_tables(&system).await;
    let own = Own::declare(&system).await;
    let outbox = rust_outbox(&system, own.exchange.clone());
    tokio::select! {
        () = outbox.relay() => {}
        () = own.gets_what_it_takes(&system, "publisher.rs") => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_in_rust_stores_an_event_once_and_refuses_another_one_with_its_id() {
    let system = TestSystem::prepared(Options::default()).await;
    make_tables(&system).await;
    let outbox = rust_outbox(&system, system.names.events_exchange.clone());
    let (mut client, connection) = tokio_postgres::connect(&system.database_url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = client.transaction().await.unwrap();
    let event = text(&Event::now(EventType::QuoteClosed, Uuid::new_v4()));
    for _ in 0..2 {
        outbox.store(&transaction, &event).await.unwrap();
    }
    let other = outbox.store(&transaction, &format!("{event} ")).await.unwrap_err().to_string();
    assert!(other.starts_with("event_id: another event has "), "{other}");
    transaction.commit().await.unwrap();
    assert_eq!(system.count("SELECT count(*) FROM outbox").await, 1);
}

fn rust_outbox(system: &System, exchange: String) -> rust::Outbox {
    let schema = std::fs::read(repository().join("proto-schemas/event.schema.json")).unwrap();
    rust::Outbox {
        database_url: system.database_url.clone(),
        amqp_url: system.amqp_url.clone(),
        exchange,
        validator: rust::validator(&serde_json::from_slice(&schema).unwrap()).unwrap(),
    }
}
