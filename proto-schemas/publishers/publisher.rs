//! Publishes business events from an outbox in PostgreSQL, with `lapin`, `tokio-postgres` and `jsonschema`.
//!
//! Call [`Outbox::store`] with the transaction of the business change. [`Outbox::relay`] runs beside your service, once or
//! several times.

use std::{collections::HashSet, error::Error, time::Duration};

use jsonschema::Validator;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls, Transaction};

/// How many rows one transaction takes.
const BATCH: i64 = 100;
/// After so many an event that always comes back is set aside: it gets a fault.
const TRIES: i32 = 10;
/// The time limit of connecting to either server, and of publishing a batch. A connection may hang without an error.
const PATIENCE: Duration = Duration::from_secs(10);

type BoxError = Box<dyn Error + Send + Sync>;

/// An outbox and where its events go.
pub struct Outbox {
    /// Where its table is.
    pub database_url: String,
    /// The broker.
    pub amqp_url: String,
    /// The exchange: `business.events`.
    pub exchange: String,
    /// Of `event.schema.json`, with formats: see [`validator`].
    pub validator: Validator,
}

/// Makes the validator of a schema.
pub fn validator(schema: &Value) -> Result<Validator, BoxError> {
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| error.to_string().into())
}

impl Outbox {
    /// Stores an event in the caller's transaction: it is published if that commits, and only then. An event that is
    /// stored already stays as it is.
    ///
    /// # Errors
    /// The event would be refused, another event has its id, or the database's.
    pub async fn store(&self, transaction: &Transaction<'_>, event: &str) -> Result<(), BoxError> {
        let (id, _) = self.check(event)?;
        let store =
            "INSERT INTO outbox (event_id, event) VALUES ($1::text::uuid, $2) ON CONFLICT (event_id) DO NOTHING";
        if transaction.execute(store, &[&id, &event]).await? == 1 {
            return Ok(());
        }
        let same = "SELECT FROM outbox WHERE event_id = $1::text::uuid AND event = $2";
        match transaction.query_opt(same, &[&id, &event]).await? {
            Some(_) => Ok(()),
            None => Err(format!("event_id: another event has {id}").into()),
        }
    }

    /// Relays for as long as it is polled. It survives whatever happens to either server.
    pub async fn relay(&self) {
        let mut pause = Duration::from_millis(100);
        loop {
            if let Err(error) = self.relay_until_a_failure(&mut pause).await {
                eprintln!("relaying failed; trying again: {error}");
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn relay_until_a_failure(&self, pause: &mut Duration) -> Result<(), BoxError> {
        let (mut client, connection) = timeout(PATIENCE, tokio_postgres::connect(&self.database_url, NoTls)).await??;
        tokio::spawn(connection);
        let (_broker, channel) = timeout(PATIENCE, self.open_channel()).await??;
        loop {
            let rows = timeout(PATIENCE, self.relay_some(&mut client, &channel)).await??;
            *pause = Duration::from_millis(100);
            if rows < BATCH as usize {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// Connects to the broker. The channel ends with its connection.
    async fn open_channel(&self) -> lapin::Result<(Connection, Channel)> {
        let broker = Connection::connect(&self.amqp_url, ConnectionProperties::default()).await?;
        let channel = broker.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok((broker, channel))
    }

    /// Publishes what waits, the oldest first. Returns how many rows it dealt with.
    async fn relay_some(&self, client: &mut Client, channel: &Channel) -> Result<usize, BoxError> {
        let transaction = client.transaction().await?;
        // Another relay skips the rows that this one has locked.
        let waiting = "SELECT position, event FROM outbox WHERE published_at IS NULL AND fault IS NULL \
                       AND (returned_at IS NULL OR returned_at < now() - interval '1 minute') \
                       ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED";
        let rows = transaction.query(waiting, &[&BATCH]).await?;
        let mut confirms = Vec::with_capacity(rows.len());
        for row in &rows {
            let (position, event): (i64, &str) = (row.get(0), row.get(1));
            match self.check(event) {
                Ok((id, event_type)) => {
                    let confirm = self.publish(channel, event, &id, &event_type).await?;
                    confirms.push((position, id, confirm));
                }
                Err(fault) => {
                    eprintln!("event at {position} can never be published: {fault}");
                    let note = "UPDATE outbox SET fault = $1 WHERE position = $2";
                    transaction.execute(note, &[&fault.to_string(), &position]).await?;
                }
            }
        }
        // All are on their way before the first confirm is awaited.
        let (mut confirmed, mut returned, mut failed) = (Vec::with_capacity(confirms.len()), HashSet::new(), None);
        for (position, id, confirm) in confirms {
            match confirm.await {
                Ok(answer) => {
                    let is_ack = answer.is_ack();
                    // Mandatory: an event that no queue takes comes back. lapin may give it to another one's answer.
                    if let Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back)) = answer {
                        returned.extend(back.delivery.properties.message_id().as_ref().map(ToString::to_string));
                    }
                    if is_ack {
                        confirmed.push((position, id));
                    } else {
                        failed = Some("the broker refused the event".into());
                    }
                }
                Err(error) => failed = Some(error.into()),
            }
        }
        let (back, done): (Vec<_>, Vec<_>) = confirmed.into_iter().partition(|(_, id)| returned.contains(id));
        let positions = |events: Vec<(i64, String)>| events.into_iter().map(|(position, _)| position);
        let mark = "UPDATE outbox SET published_at = now() WHERE position = ANY($1)";
        transaction.execute(mark, &[&positions(done).collect::<Vec<_>>()]).await?;
        let mark = "UPDATE outbox SET returned_at = now(), returns = returns + 1, \
                    fault = CASE WHEN returns + 1 >= $1 THEN $2 END WHERE position = $3 RETURNING fault";
        let fault = format!("no queue took it, {TRIES} times");
        for position in positions(back) {
            eprintln!("event at {position} came back: no queue accepts it");
            let row = transaction.query_one(mark, &[&TRIES, &fault, &position]).await?;
            if let Some(fault) = row.get::<_, Option<&str>>(0) {
                eprintln!("event at {position} IS SET ASIDE: {fault}");
            }
        }
        transaction.commit().await?;
        failed.map_or(Ok(rows.len()), Err)
    }

    async fn publish(
        &self,
        channel: &Channel,
        event: &str,
        id: &str,
        event_type: &str,
    ) -> lapin::Result<lapin::PublisherConfirm> {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/json".into())
            .with_message_id(id.into());
        channel
            .basic_publish(self.exchange.as_str().into(), event_type.into(), options, event.as_bytes(), properties)
            .await
    }

    /// Validates an event against the schema. Returns its id and its type.
    fn check(&self, event: &str) -> Result<(String, String), BoxError> {
        let event: Value = serde_json::from_str(event)?;
        let fault = |fault: jsonschema::ValidationError<'_>| format!("{}: {fault}", fault.instance_path());
        let faults: Vec<_> = self.validator.iter_errors(&event).map(fault).collect();
        if !faults.is_empty() {
            return Err(faults.join("; ").into());
        }
        let text = |member: &str| event[member].as_str().unwrap_or_default().to_owned();
        Ok((text("event_id"), text("event_type")))
    }
}
