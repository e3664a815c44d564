//! A business with a database: it changes something and stores the event in one transaction, or rolls both back. The
//! relay of `proto-schemas/publishers` publishes what was committed.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

#[expect(unreachable_pub, reason = "a file to copy into another program")]
#[path = "../../../proto-schemas/publishers/publisher.rs"]
mod publisher;

use self::publisher::{Outbox, validator};
use super::{evidence::Published, plan::PlannedEvent};
use crate::{events::Event, servers::repository, system::System};

/// How long a transaction may take. A database that is frozen answers nothing.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(3);

/// One of so many changes is begun, stored and rolled back once, with an event of its own.
const ROLLED_BACK: usize = 3;

/// The business, and its outbox.
pub(super) struct Business {
    outbox: Outbox,
    tenants: Vec<Uuid>,
}

impl Business {
    /// Makes the tables in the system's database.
    pub(super) async fn open(system: &System, amqp_url: String, tenants: Vec<Uuid>) -> Self {
        let contracts = repository().join("proto-schemas");
        let read = |file: &str| std::fs::read_to_string(contracts.join(file)).expect("the file is there");
        for statement in read("publishers/outbox.sql").split_inclusive(";\n") {
            system.sql(statement.trim().trim_end_matches(';')).await;
        }
        system.sql("CREATE TABLE changes (event_id uuid PRIMARY KEY)").await;
        let schema: Value = serde_json::from_str(&read("event.schema.json")).expect("the schema is JSON");
        let outbox = Outbox {
            database_url: system.database_url.clone(),
            amqp_url,
            exchange: system.names.events_exchange.clone(),
            validator: validator(&schema).expect("the schema is good"),
        };
        Self { outbox, tenants }
    }

    /// Publishes what is committed, for as long as it is polled.
    pub(super) async fn relay(&self) {
        self.outbox.relay().await;
    }

    /// Makes each change at its time, or once the earlier ones are committed. Returns the events, when the relay has
    /// published them all.
    pub(super) async fn work(&self, began: Instant, planned: Vec<PlannedEvent>) -> Vec<Published> {
        let (mut committed, mut client) = (Vec::with_capacity(planned.len()), None);
        for (nth, planned) in planned.into_iter().enumerate() {
            sleep_until(began + planned.at).await;
            let event = planned.happened(&self.tenants);
            if nth % ROLLED_BACK == 0 {
                let abandoned = Event { id: Uuid::new_v4(), ..event.clone() };
                // Whatever comes of it, it is not committed.
                let _ = timeout(TRANSACTION_TIMEOUT, self.change(&mut client, &abandoned, false)).await;
            }
            // It may have been committed although no answer came: then it is found and stays as it is.
            while !timeout(TRANSACTION_TIMEOUT, self.change(&mut client, &event, true))
                .await
                .is_ok_and(|done| done.is_ok())
            {
                sleep(Duration::from_millis(100)).await;
            }
            committed.push(Published { event, times: 1 });
        }
        while !timeout(TRANSACTION_TIMEOUT, self.is_all_published()).await.is_ok_and(|all| all.is_ok_and(|all| all)) {
            sleep(Duration::from_millis(100)).await;
        }
        committed
    }

    /// One transaction: the change, and its event. The connection is kept unless something fails.
    async fn change(
        &self,
        kept: &mut Option<Client>,
        event: &Event,
        commits: bool,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut client = match kept.take() {
            Some(client) if !client.is_closed() => client,
            _ => {
                let (client, connection) = tokio_postgres::connect(&self.outbox.database_url, NoTls).await?;
                tokio::spawn(connection);
                client
            }
        };
        let transaction = client.transaction().await?;
        let change = "INSERT INTO changes (event_id) VALUES ($1::text::uuid) ON CONFLICT DO NOTHING";
        transaction.execute(change, &[&event.id.to_string()]).await?;
        self.outbox.store(&transaction, &String::from_utf8(event.to_message())?).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        *kept = Some(client);
        Ok(())
    }

    async fn is_all_published(&self) -> Result<bool, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.outbox.database_url, NoTls).await?;
        tokio::spawn(connection);
        let row = client.query_one("SELECT count(*) FROM outbox WHERE published_at IS NULL", &[]).await?;
        Ok(row.get::<_, i64>(0) == 0)
    }
}
