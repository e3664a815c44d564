//! Parked messages.

use broker::Parked;

use crate::{publish, wait_for_depth, with_broker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_messages_that_were_read_and_wanted_are_discarded() {
    with_broker(async |broker| {
        let queue = broker.names().main();
        publish(broker, 0..4, 1).await;
        wait_for_depth(broker, 4).await;
        let is_even = |parked: &Parked| parked.body[0].is_multiple_of(2);
        let reading = broker.parked_read(&queue, 1, is_even).await.unwrap();
        assert_eq!(reading.parked().iter().map(|parked| parked.body.as_slice()).collect::<Vec<_>>(), [b"0"]);
        publish(broker, 4..5, 1).await;
        wait_for_depth(broker, 1).await;
        assert_eq!(reading.discard().await.unwrap(), 1);
        let mut left: Vec<_> =
            broker.parked_list(&queue, 10).await.unwrap().into_iter().map(|parked| parked.body).collect();
        left.sort();
        assert_eq!(left, [b"1", b"2", b"3", b"4"]);

        let reading = broker.parked_read(&queue, 10, |_| true).await.unwrap();
        wait_for_depth(broker, 0).await;
        drop(reading);
        wait_for_depth(broker, 4).await;
    })
    .await;
}
