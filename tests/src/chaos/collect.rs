//! Gathers the evidence from where it is kept.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{DeliveryId, RetrySchedule, WebhookId};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio_postgres::{Client, NoTls, Row};
use uuid::Uuid;

use super::{
    evidence::{Attempt, Delivery, Evidence, Health, HealthShown, Post, Published, StoredEvent, WebhookState},
    fixtures::{Fixtures, Subscriber},
    rest::Record,
};
use crate::system::System;

/// What the storm has seen itself.
pub(super) struct Seen {
    pub(super) published: Vec<Published>,
    pub(super) left: Vec<String>,
    pub(super) misconduct: Vec<String>,
}

pub(super) async fn collect(
    system: &System,
    schedule: RetrySchedule,
    fixtures: &Fixtures,
    record: &Record,
    seen: Seen,
) -> Evidence {
    let (client, connection) =
        tokio_postgres::connect(&system.database_url, NoTls).await.expect("the database answers");
    tokio::spawn(connection);
    let mut subscriptions = Vec::new();
    let mut health = HashMap::new();
    for (index, subscriber) in fixtures.subscribers.iter().enumerate() {
        let mut subscription = subscriber.subscription.clone();
        subscription.changes = record.changes_of(index);
        let is_deleted = subscription.changes.iter().any(|change| change.to == WebhookState::Deleted);
        let ledger = health_in_ledger(&client, subscription.webhook).await;
        let api = if is_deleted { None } else { Some(health_by_api(subscriber).await) };
        health.insert(subscription.webhook, HealthShown { ledger, api });
        subscriptions.push(subscription);
    }
    let tests = tests(&client).await;
    Evidence {
        schedule,
        subscriptions,
        published: seen.published,
        events: events(&client, &tests).await,
        deliveries: deliveries(&client).await,
        attempts: attempts(&client).await,
        health,
        posts: posts(fixtures),
        trapped: fixtures.trap.received().len(),
        resent: record.resent(),
        left: seen.left,
        misconduct: seen.misconduct,
    }
}

/// A time from microseconds since 1970: a number needs no client's time format.
fn moment(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000).expect("a time of today")
}

/// SQL for such microseconds.
macro_rules! micros {
    ($column:literal) => {
        concat!("(extract(epoch FROM ", $column, ") * 1000000)::bigint")
    };
}

async fn rows(client: &Client, statement: &str) -> Vec<Row> {
    client.query(statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"))
}

fn id(row: &Row, column: usize) -> Uuid {
    row.get::<_, String>(column).parse().expect("an id")
}

async fn tests(client: &Client) -> HashSet<Uuid> {
    let found = rows(client, "SELECT event_id::text FROM deliveries WHERE is_test").await;
    found.iter().map(|row| id(row, 0)).collect()
}

async fn events(client: &Client, tests: &HashSet<Uuid>) -> HashMap<Uuid, StoredEvent> {
    let statement = concat!("SELECT id::text, ", micros!("received_at"), ", body FROM events");
    let found = rows(client, statement).await;
    let event = |row: &Row| (id(row, 0), StoredEvent { at: moment(row.get(1)), body: row.get(2) });
    found.iter().map(event).filter(|(id, _)| !tests.contains(id)).collect()
}

async fn deliveries(client: &Client) -> Vec<Delivery> {
    let statement =
        "SELECT id::text, webhook_id::text, event_id::text, is_test, state, attempts, run_base FROM deliveries";
    let delivery = |row: &Row| Delivery {
        id: DeliveryId::from(id(row, 0)),
        webhook: WebhookId::from(id(row, 1)),
        event: id(row, 2),
        is_test: row.get(3),
        state: row.get::<_, String>(4).parse().expect("a state"),
        attempts: u16::try_from(row.get::<_, i16>(5)).expect("a count"),
        run_base: u16::try_from(row.get::<_, i16>(6)).expect("a count"),
    };
    rows(client, statement).await.iter().map(delivery).collect()
}

async fn attempts(client: &Client) -> HashMap<DeliveryId, Vec<Attempt>> {
    let statement = concat!(
        "SELECT delivery_id::text, attempt, extract(epoch FROM signed_at)::bigint, ",
        micros!("started_at"),
        ", duration_us, outcome, status, xmin::text::bigint FROM attempts ORDER BY delivery_id, attempt"
    );
    let mut attempts: HashMap<_, Vec<_>> = HashMap::new();
    for row in rows(client, statement).await {
        let outcome: String = row.get(5);
        let attempt = Attempt {
            delivery: DeliveryId::from(id(&row, 0)),
            number: u16::try_from(row.get::<_, i16>(1)).expect("a number"),
            signed_at: row.get(2),
            started_at: moment(row.get(3)),
            duration: Duration::from_micros(u64::try_from(row.get::<_, i64>(4)).expect("a duration")),
            outcome: domain::OutcomeClass::ALL.into_iter().find(|one| one.as_str() == outcome).expect("an outcome"),
            status: row.get::<_, Option<i16>>(6).map(|status| u16::try_from(status).expect("a status")),
            transaction: row.get(7),
        };
        attempts.entry(attempt.delivery).or_default().push(attempt);
    }
    attempts
}

async fn health_in_ledger(client: &Client, webhook: WebhookId) -> Health {
    let columns = concat!("SELECT ", micros!("last_success_at"), ", failure_count::bigint FROM webhook_health");
    let rows = rows(client, &format!("{columns} WHERE webhook_id = '{webhook}'")).await;
    rows.first().map_or(Health { last_success_at: None, failure_count: 0 }, |row| Health {
        last_success_at: row.get::<_, Option<i64>>(0).map(moment),
        failure_count: row.get(1),
    })
}

async fn health_by_api(subscriber: &Subscriber) -> Health {
    let webhook = subscriber.admin.webhook(&subscriber.subscription.webhook.to_string()).await;
    let parse = |text: &str| OffsetDateTime::parse(text, &Rfc3339).expect("a time");
    Health {
        last_success_at: webhook["last_success_at"].as_str().map(parse),
        failure_count: webhook["failure_count"].as_i64().expect("a count"),
    }
}

fn posts(fixtures: &Fixtures) -> Vec<Post> {
    let of = |subscriber: &Subscriber| {
        let webhook = subscriber.subscription.webhook;
        subscriber.receiver.received().into_iter().map(move |received| Post { webhook, received })
    };
    fixtures.subscribers.iter().flat_map(of).collect()
}
