//! Confirms of callers that publish on one channel at the same time.

use std::sync::Arc;

use broker::{Broker, Outgoing, PublishError, Publisher, Unconfirmed};
use lapin::{
    Connection,
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use crate::{connected, counters, wait_for_depth, with_broker};

/// As many messages as are sent together.
const BATCH_MESSAGES: usize = 32;
const ROUNDS: usize = 30;
/// The callers besides the one that is refused.
const OTHER_CALLERS: usize = 5;

fn messages(queue: &str) -> Vec<Outgoing> {
    vec![Outgoing { routing_key: queue.to_owned(), body: b"{}".to_vec(), ..Default::default() }; BATCH_MESSAGES]
}

/// Declares a queue that is always full: every publish to it is refused. It ends with the connection.
async fn full(broker: &Broker) -> (Connection, String) {
    let (connection, channel) = connected().await;
    let queue = format!("{}.full", broker.names().exchange());
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(0));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let options = QueueDeclareOptions { exclusive: true, ..Default::default() };
    channel.queue_declare(queue.as_str().into(), options, arguments).await.unwrap();
    let (exchange, name) = (broker.names().exchange(), queue.as_str());
    let options = QueueBindOptions::default();
    channel.queue_bind(name.into(), exchange.into(), name.into(), options, FieldTable::default()).await.unwrap();
    (connection, queue)
}

/// Publishes once all callers are ready.
async fn published(publisher: Publisher, queue: String, all: Arc<Barrier>) -> Result<(), Unconfirmed> {
    let messages = messages(&queue);
    all.wait().await;
    publisher.publish(&messages).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_callers_at_once_only_the_one_whose_messages_were_refused_is_told_so_and_the_connection_stays() {
    with_broker(async |broker| {
        let stop = CancellationToken::new();
        let good = broker.names().main();
        let publisher = broker.publisher(stop.clone());
        publisher.publish(&messages(&good)).await.unwrap();
        let (_connection, full) = full(broker).await;
        for _ in 0..ROUNDS {
            let all = Arc::new(Barrier::new(OTHER_CALLERS + 1));
            let caller = |queue: &str| tokio::spawn(published(publisher.clone(), queue.to_owned(), Arc::clone(&all)));
            let (refused, others) = (caller(&full), [(); OTHER_CALLERS].map(|()| caller(&good)));
            let refused = refused.await.unwrap().unwrap_err();
            assert!(matches!(*refused.error, PublishError::Refused), "{refused:?}");
            assert_eq!(refused.places.len(), BATCH_MESSAGES);
            for other in others {
                other.await.unwrap().expect("what was taken is told as refused");
            }
        }
        assert!(counters(broker).contains("reconnects_total 0"), "{}", counters(broker));
        stop.cancel();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_one_call_it_is_told_which_messages_were_refused_and_the_others_are_there_once() {
    with_broker(async |broker| {
        let stop = CancellationToken::new();
        let publisher = broker.publisher(stop.clone());
        publisher.publish(&messages(&broker.names().dead())).await.unwrap();
        let (_connection, full) = full(broker).await;
        let to = |number: usize| if number.is_multiple_of(3) { full.clone() } else { broker.names().main() };
        let message = |number: usize| Outgoing { routing_key: to(number), body: b"{}".to_vec(), ..Default::default() };
        let messages: Vec<_> = (0..4 * BATCH_MESSAGES).map(message).collect();
        let refused: Vec<_> = (0..messages.len()).step_by(3).collect();
        for round in 1..=3 {
            let unconfirmed = publisher.publish(&messages).await.unwrap_err();
            assert_eq!((&unconfirmed.places, unconfirmed.all, &unconfirmed.queue), (&refused, messages.len(), &full));
            wait_for_depth(broker, round * (messages.len() - refused.len()) as u32).await;
        }
        assert!(counters(broker).contains("reconnects_total 0"), "{}", counters(broker));
        stop.cancel();
    })
    .await;
}
