//! Cleans up, whatever happened.

use std::{fs, time::Duration};

use end_to_end::outsider::sql;
use lapin::{
    Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use tokio::time::timeout;

use crate::{environment::Environment, failure::Checked};

/// How long cleaning up may take on each server.
const PATIENCE: Duration = Duration::from_secs(20);

/// Removes the queues, the exchanges and the database. Returns what could not be removed, and why.
pub(crate) async fn remove(environment: &Environment) -> Vec<String> {
    let mut left = Vec::new();
    let mut note = |what: String, why: String| left.push(format!("{what} ({why})"));
    match timeout(PATIENCE, delete_queues(environment)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => note(format!("queues {}.*", environment.prefix), error.to_string()),
        Err(_) => note(format!("queues {}.*", environment.prefix), "the broker does not answer".to_owned()),
    }
    let url = environment.servers.database_url.clone();
    let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", environment.database);
    // In a task of its own, because `sql` panics when the database refuses.
    let dropped = tokio::spawn(async move { sql(&url, &drop).await });
    if !matches!(timeout(PATIENCE, dropped).await, Ok(Ok(_))) {
        note(format!("database {}", environment.database), "the server does not answer or refuses".to_owned());
    }
    left
}

async fn delete_queues(environment: &Environment) -> Result<(), lapin::Error> {
    let connection = Connection::connect(&environment.servers.amqp_url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let topology = environment.topology();
    for queue in &topology.queues {
        channel.queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    let url = environment.database_url();
    let generations = "SELECT id::text FROM broker_generation WHERE id IS NOT NULL";
    for row in tokio::spawn(async move { sql(&url, generations).await }).await.unwrap_or_default() {
        let queue = environment.names().generation(row.get::<_, &str>(0).parse().unwrap_or_default());
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await?;
    }
    for exchange in &topology.exchanges {
        channel.exchange_delete(exchange.name.as_str().into(), ExchangeDeleteOptions::default()).await?;
    }
    connection.close(200, "bye".into()).await
}

/// Removes the folder. After a failure the logs in it stay, for whoever looks for the reason.
pub(crate) fn remove_folder(environment: &Environment, outcome: &Checked) {
    if outcome.is_ok() {
        let _ = fs::remove_dir_all(&environment.folder);
    } else {
        for file in ["authority.pem", "authority.key"] {
            let _ = fs::remove_file(environment.folder.join(file));
        }
        // Fails, as it should, unless the folder is empty because no service was started.
        let _ = fs::remove_dir(&environment.folder);
    }
}
