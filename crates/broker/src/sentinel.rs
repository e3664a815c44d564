//! The sentinel: a queue that shows whether the broker still has its data (crates/README.md, queues).

use lapin::{
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};

use crate::{
    broker::{Broker, in_time},
    error::BrokerError,
};

impl Broker {
    /// Declares a queue that is lost only with the broker's disk. It is durable, and kept where the jobs are kept.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub async fn sentinel_declare(&self, queue: &str) -> Result<(), BrokerError> {
        let (connection, channel) = self.connect("sentinel").await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        in_time(async { Ok(channel.queue_declare(queue.into(), options, arguments).await?) }).await?;
        in_time(async { Ok(connection.close(200, "bye".into()).await?) }).await
    }
}
