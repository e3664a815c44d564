//! The bindings of the events queue.

use lapin::{
    BasicProperties, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions},
    types::FieldTable,
};

use crate::{connected, publish, with_broker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_and_an_exchange_that_somebody_deleted_are_declared_again() {
    with_broker(async |broker| {
        publish(broker, 0..1, 1).await;
        let (connection, channel) = connected().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let (events, exchange) = (broker.names().events(), broker.names().events_exchange.as_str());
        let is_taken = async |key: &str| {
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let published =
                channel.basic_publish(exchange.into(), key.into(), options, b"{}", BasicProperties::default());
            published.await.unwrap().await.unwrap() == Confirmation::Ack(None)
        };
        assert!(is_taken("quote.closed").await && !is_taken("Quote.Closed").await);
        let unbound =
            channel.queue_unbind(events.as_str().into(), exchange.into(), "quote.closed".into(), FieldTable::default());
        unbound.await.unwrap();
        assert!(!is_taken("quote.closed").await);
        broker.bind_events().await.unwrap();
        assert!(is_taken("quote.closed").await);
        channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await.unwrap();
        broker.bind_events().await.unwrap();
        assert!(is_taken("quote.closed").await && !is_taken("Quote.Closed").await);
        connection.close(200, "bye".into()).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_that_are_refused_once_are_declared_the_next_time() {
    with_broker(async |broker| {
        publish(broker, 0..1, 1).await;
        broker.bind_events().await.unwrap();
        let (connection, channel) = connected().await;
        let queue = broker.names().events();
        channel.queue_delete(queue.as_str().into(), Default::default()).await.unwrap();
        let refused = broker.bind_events().await.unwrap_err().to_string();
        assert!(refused.contains(&queue), "{refused}");
        // The connection that was refused is not kept: the next one declares everything.
        broker.bind_events().await.unwrap();
        assert_eq!(broker.depth(&queue).await.unwrap(), Some(0));
        connection.close(200, "bye".into()).await.unwrap();
    })
    .await;
}
