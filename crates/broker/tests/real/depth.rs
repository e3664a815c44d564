//! Depths of queues.

use lapin::options::QueuePurgeOptions;

use crate::{connected, eventually, publish, with_broker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_nobody_consumes_is_shown_as_empty_once_it_is_purged() {
    with_broker(async |broker| {
        let queue = broker.names().main();
        publish(broker, 0..2, 1).await;
        let shown = async |expected| broker.depth_shown(&queue).await.unwrap() == Some(expected);
        eventually("both are shown", async || shown(2).await).await;
        let (connection, channel) = connected().await;
        channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
        assert!(shown(0).await);
        connection.close(200, "bye".into()).await.unwrap();
        assert_eq!(broker.depth_shown("no such queue").await.unwrap(), None);
    })
    .await;
}
