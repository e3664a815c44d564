//! The publishers that we hand out (`proto-schemas/publishers`), from the transaction of a business change to the
//! delivery.
#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../../proto-schemas/publishers/publisher.rs"]
mod rust;

use std::{
    path::PathBuf,
    process::{Output, Stdio},
};

use domain::EventType;
use end_to_end::{
    events::Event,
    proxy::{Mode, Proxy},
    receiver::{always, verify},
    servers::repository,
    system::{Options, Subscriber, System, TestSystem},
    tools::Tool,
    wait::{SOON, eventually, until},
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
};
use uuid::Uuid;

use crate::samples::{Folder, libraries};

/// A program and what runs it.
struct Program {
    interpreter: PathBuf,
    file: &'static str,
    tool: Tool,
    /// The options for a script, and one that closes a quote and stores its event, and another quote with an event that is
    /// refused, for each such event.
    business: (&'static [&'static str], &'static str),
}

const PYTHON: &str = "
import json, os, psycopg
from publisher import Invalid, store
with psycopg.connect(os.environ['DATABASE_URL']) as connection:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(\"UPDATE quotes SET state = 'closed' WHERE id = 1\")
        store(cursor, os.environ['COMMITTED'])
        store(cursor, os.environ['COMMITTED'])
    for refused in json.loads(os.environ['REFUSED']):
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
for (const refused of JSON.parse(process.env.REFUSED)) {
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

impl Program {
    /// A folder with the program.
    fn folder(&self) -> Folder {
        Folder::below(&libraries(), &[&format!("publishers/{}", self.file)])
    }

    /// A command in its folder, with the addresses of this system.
    fn command(&self, system: &System, folder: &Folder) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.current_dir(&folder.0).env("AMQP_URL", &system.amqp_url).env("DATABASE_URL", &system.database_url);
        command.env("EVENTS_EXCHANGE", &system.names.events_exchange).env("PATIENCE", "1");
        command.env("EVENT_SCHEMA", repository().join("proto-schemas/event.schema.json"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        command
    }

    /// Publishes one event by hand. Returns the exit code and what it says.
    async fn publish(&self, mut command: Command, event: &str) -> (Option<i32>, String) {
        command.args([self.file, "publish"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(event.as_bytes()).await.unwrap();
        drop(input);
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        (output.status.code(), all_of(&output))
    }

    /// Runs the business change that commits and those that do not. `refused` are events, each with its fault.
    async fn do_business(
        &self,
        mut command: Command,
        [committed, rolled_back]: &[String; 2],
        refused: &[(String, &str)],
    ) {
        let (option, script) = self.business;
        let events: Vec<_> = refused.iter().map(|(event, _)| event).collect();
        command.args(option).arg(script).env("REFUSED", serde_json::to_string(&events).unwrap());
        let output = command.env("COMMITTED", committed).env("ROLLED_BACK", rolled_back).output().await.unwrap();
        let said = all_of(&output);
        let faults: Vec<_> = said.lines().filter(|line| line.starts_with("rolled back: ")).collect();
        assert!(output.status.success() && faults.len() == refused.len(), "{said}");
        for ((event, fault), line) in refused.iter().zip(faults) {
            assert!(line.contains(fault), "{event}: {line}");
        }
    }

    fn relay(&self, mut command: Command) -> Child {
        command.args([self.file, "relay"]).stdin(Stdio::null()).spawn().unwrap()
    }
}

fn all_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn text(event: &Event) -> String {
    String::from_utf8(event.to_message()).unwrap()
}

/// Makes the tables of a business application, anew if they are there.
async fn make_tables(system: &System) {
    system.sql("DROP TABLE IF EXISTS outbox, quotes").await;
    let outbox = std::fs::read_to_string(repository().join("proto-schemas/publishers/outbox.sql")).unwrap();
    for statement in outbox.split_inclusive(";\n") {
        system.sql(statement.trim().trim_end_matches(';')).await;
    }
    system.sql("CREATE TABLE quotes AS SELECT id, 'open' AS state FROM generate_series(1, 2) AS id").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_program_publishes_an_event_once_and_says_why_it_cannot() {
    let system = TestSystem::shared().await;
    for program in programs() {
        let (name, folder) = (program.file, program.folder());
        let Subscriber { tenant, receiver, secret, .. } = system.subscriber(always(200)).await;
        let event = text(&Event::now(EventType::QuoteClosed, tenant).with_data(r#"{"total":1.10}"#));
        let last = text(&Event::now(EventType::QuoteClosed, tenant));
        for (variables, event, ended, words) in [
            (&[][..], &*event, 0, "confirmed "),
            (&[], &event, 0, "confirmed "),
            (&[], "{", 2, "not JSON"),
            (&[("EVENTS_EXCHANGE", "amq.topic")], &event, 1, "not confirmed within 1 s"),
            (&[("EVENTS_EXCHANGE", "nowhere")], &event, 1, "no exchange 'nowhere'"),
            (&[("AMQP_URL", "amqp://127.0.0.1:1")], &event, 1, "not confirmed within 1 s"),
            (&[], &last, 0, "confirmed "),
        ] {
            let mut command = program.command(&system, &folder);
            command.envs(variables.iter().copied());
            let (code, said) = program.publish(command, event).await;
            assert!(code == Some(ended) && said.contains(words), "{name}: {variables:?}: {code:?} {said}");
        }
        let received = receiver.wait_for(2, SOON).await;
        for one in &received {
            verify(one, &secret).unwrap();
        }
        assert!(received[0].body.ends_with(br#""data":{"total":1.10}}"#), "{name}: byte for byte");
        let stored = format!("SELECT count(*) FROM events WHERE tenant_id = '{tenant}'");
        assert_eq!(system.count(&stored).await, 2, "{name}");
    }
}

/// What no business change may store beside the event `stored`, each with its fault. `event` is another one.
fn refused_beside(stored: &str, event: &str) -> [(String, &'static str); 7] {
    [
        (format!("{stored} "), "event_id: another event has"),
        ("{".to_owned(), "not JSON"),
        (event.replace("\"event_id\":\"", "\"event_id\":\"x"), "event_id"),
        (event.replace("quote.closed", "quote.reopened"), "event_type"),
        (event.replace("\"timestamp\":\"", "\"timestamp\":\"at "), "timestamp"),
        (event.replace("\"data\"", "\"date\""), "data"),
        // What Python's own `json.dumps` writes. The service refuses it.
        (event.replace("\"174.00\"", "NaN"), "not JSON"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_events_delivery_comes_and_a_rolled_back_one_leaves_no_trace() {
    let system = TestSystem::shared().await;
    let business = TestSystem::prepared(Options::default()).await;
    for program in programs() {
        let (name, folder) = (program.file, program.folder());
        let run = || {
            let mut command = program.command(&system, &folder);
            command.env("DATABASE_URL", &business.database_url);
            command
        };
        make_tables(&business).await;
        let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
        let [committed, rolled_back] = [0, 1].map(|_| Event::now(EventType::QuoteClosed, tenant));
        let [event, other] = [&committed, &rolled_back].map(text);

        let refused = refused_beside(&event, &other);
        program.do_business(run(), &[event, other.clone()], &refused).await;
        let deep = format!("{{\"by\": {}{}}}", "[".repeat(3000), "]".repeat(3000));
        for by_hand in ["{\"by\": \"hand\"}", &deep] {
            business
                .sql(&format!("INSERT INTO outbox (event_id, event) VALUES (gen_random_uuid(), '{by_hand}')"))
                .await;
        }
        let others = text(&Event::now(EventType::ReturnNoteCreated, Uuid::new_v4()));
        business
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
            business.count(open).await == 0
        })
        .await;
        assert_eq!(business.count("SELECT count(*) FROM outbox WHERE fault IS NOT NULL").await, 2, "{name}");

        let later = text(&Event::now(EventType::QuoteClosed, tenant));
        program.do_business(run(), &[later, other], &[]).await;
        receiver.wait_for(2, SOON).await;
        for mut relay in relays {
            let pid = relay.id().unwrap().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
            let status = tokio::time::timeout(SOON, relay.wait()).await.unwrap().unwrap();
            assert!(status.success(), "{name} ends in order");
        }
        let said = std::fs::read_to_string(&warnings).unwrap_or_default();
        assert_eq!(said, "", "{name} warns");
        let stored = system.sql(&format!("SELECT id::text FROM events WHERE tenant_id = '{tenant}'")).await;
        let ids: Vec<Uuid> = stored.iter().map(|row| row.get::<_, &str>(0).parse().unwrap()).collect();
        assert!(ids.len() == 2 && ids.contains(&committed.id) && !ids.contains(&rolled_back.id), "{name}: {ids:?}");
    }
}

/// Stores an event of this type for a relay.
async fn store(business: &System, event: &Event) {
    let event = text(event);
    business.sql(&format!("INSERT INTO outbox (event_id, event) VALUES (gen_random_uuid(), '{event}')")).await;
}

/// The broker falls silent, an event is stored, and the connection breaks before its confirm: then it comes later. `proxy`
/// is between the relay and the broker.
async fn comes_although_the_connection_breaks(system: &System, business: &System, name: &str, proxy: &Proxy) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    store(business, &Event::now(EventType::QuoteClosed, tenant)).await;
    receiver.wait_for(1, SOON).await;

    proxy.set(Mode::Stall);
    store(business, &Event::now(EventType::QuoteClosed, tenant)).await;
    until(&format!("{name} has taken the event"), SOON, || async {
        let free = "SELECT position FROM outbox WHERE published_at IS NULL FOR UPDATE SKIP LOCKED";
        business.sql(free).await.is_empty()
    })
    .await;
    proxy.set(Mode::Refuse);
    proxy.set(Mode::Pass);
    receiver.wait_for(2, SOON).await;
    until(&format!("{name} has marked the event"), SOON, || async {
        business.count("SELECT count(*) FROM outbox WHERE published_at IS NULL").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_confirm_never_came_is_published_again() {
    let system = TestSystem::shared().await;
    let business = TestSystem::prepared(Options::default()).await;
    let (proxy, through) = Proxy::before(&system.amqp_url);
    for program in programs() {
        make_tables(&business).await;
        let folder = program.folder();
        let mut command = program.command(&system, &folder);
        command.env("AMQP_URL", &through).env("DATABASE_URL", &business.database_url);
        let _relay = program.relay(command);
        comes_although_the_connection_breaks(&system, &business, program.file, &proxy).await;
    }
    make_tables(&business).await;
    let outbox = rust::Outbox { amqp_url: through, ..rust_outbox(&business, system.names.events_exchange.clone()) };
    tokio::select! {
        () = outbox.relay() => {}
        () = comes_although_the_connection_breaks(&system, &business, "publisher.rs", &proxy) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_holds_no_rows_for_long_while_the_broker_is_silent() {
    for program in programs() {
        let name = program.file;
        let system = TestSystem::running(Options::default()).await;
        make_tables(&system).await;
        let (proxy, through) = Proxy::before(&system.amqp_url);
        let folder = program.folder();
        let mut command = program.command(&system, &folder);
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

/// The broker's answers to the opening of a channel and to the choice of confirms: class and method.
const CHANNEL_OPEN_OK: &str = "\0\u{14}\0\u{b}";
const CONFIRM_SELECT_OK: &str = "\0\u{55}\0\u{b}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_in_rust_gives_up_a_connection_that_falls_silent_before_it_publishes() {
    let system = TestSystem::running(Options::default()).await;
    make_tables(&system).await;
    let gives_up = async |silent_at: &'static str| {
        let (proxy, through) = Proxy::before(&system.amqp_url);
        let exchange = system.names.events_exchange.clone();
        let outbox = rust::Outbox { amqp_url: through, ..rust_outbox(&system, exchange) };
        proxy.set(Mode::HoldAt(silent_at));
        let again = async || (proxy.connections() > 1).then_some(());
        tokio::select! {
            () = outbox.relay() => {}
            () = eventually("the relay connects again", SOON * 2, again) => {}
        }
    };
    tokio::join!(gives_up(CHANNEL_OPEN_OK), gives_up(CONFIRM_SELECT_OK));
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
    let system = TestSystem::prepared(Options::default()).await;
    for program in programs() {
        make_tables(&system).await;
        let (own, folder) = (Own::declare(&system).await, program.folder());
        let mut command = program.command(&system, &folder);
        command.env("EVENTS_EXCHANGE", &own.exchange);
        let _relay = program.relay(command);
        own.gets_what_it_takes(&system, program.file).await;
    }
    make_tables(&system).await;
    let own = Own::declare(&system).await;
    let outbox = rust_outbox(&system, own.exchange.clone());
    stores_once(&system, &outbox).await;
    make_tables(&system).await;
    tokio::select! {
        () = outbox.relay() => {}
        () = own.gets_what_it_takes(&system, "publisher.rs") => {}
    }
}

/// The program in Rust stores an event once, and refuses another one with its id.
async fn stores_once(system: &System, outbox: &rust::Outbox) {
    let mut client = system.database_session("").await;
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
