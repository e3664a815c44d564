//! The number of messages that a consumer holds.

use std::{collections::BTreeSet, time::Duration};

use broker::{Acker, Attachment, BatchLimit, Prefetch, Subscription};
use tokio::time::timeout;

use crate::{
    NOTHING_WENT_WRONG, WAIT_TIMEOUT, counters, delete, eventually, number, publish, wait_for_depth, with_broker,
};

const PREFETCH: u16 = 64;
/// After the first few messages, a second consumer takes the others.
const IN_TWO: Prefetch = Prefetch::of_small(PREFETCH);
const MESSAGES: u32 = 400;
/// Bytes of the bodies, in turn.
const SIZES: [usize; 2] = [10, 40_000];
/// This many messages are acknowledged before the others are counted.
const ACKNOWLEDGED_MESSAGES: u32 = 250;

/// Accepts and acknowledges `count` messages. Returns their numbers.
async fn finish(subscription: &mut Subscription, count: u32) -> Vec<usize> {
    let (count, mut numbers) = (count as usize, Vec::new());
    while numbers.len() < count {
        let limit = BatchLimit { messages: (count - numbers.len()).min(20), bytes: usize::MAX, linger: Duration::ZERO };
        let batch = timeout(WAIT_TIMEOUT, subscription.next_batch(limit)).await;
        let batch = batch.unwrap_or_else(|_| panic!("{} of {count} came", numbers.len())).unwrap();
        numbers.extend(batch.iter().map(number));
        Acker::ack_all(batch.into_iter().map(|message| message.acker).collect()).await;
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_most_the_prefetch_is_held_and_each_message_comes_once() {
    with_broker(async |broker| {
        let mut subscription = broker.subscribe(broker.names().main(), IN_TWO, Attachment::default());
        for size in SIZES {
            publish(broker, 0..MESSAGES as usize, size).await;
            wait_for_depth(broker, MESSAGES - u32::from(PREFETCH)).await;
            let mut came = BTreeSet::from_iter(finish(&mut subscription, ACKNOWLEDGED_MESSAGES).await);
            wait_for_depth(broker, MESSAGES - ACKNOWLEDGED_MESSAGES - u32::from(PREFETCH)).await;
            came.extend(finish(&mut subscription, MESSAGES - ACKNOWLEDGED_MESSAGES).await);
            assert!(came.into_iter().eq(0..MESSAGES as usize));
        }
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
        assert_eq!(counters(broker), NOTHING_WENT_WRONG);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_consumers_attach_again_when_the_queue_was_deleted() {
    with_broker(async |broker| {
        let queue = broker.names().main();
        let mut subscription = broker.subscribe(queue.clone(), IN_TWO, Attachment::default());
        publish(broker, 0..MESSAGES as usize, SIZES[0]).await;
        let limit = BatchLimit { messages: 1, bytes: 1, linger: Duration::ZERO };
        let held = timeout(WAIT_TIMEOUT, subscription.next_batch(limit)).await.unwrap().unwrap().remove(0);
        delete([queue.clone()], []).await;
        eventually("the channel is let go", async || !held.acker.is_usable()).await;
        publish(broker, 0..MESSAGES as usize, SIZES[0]).await;
        finish(&mut subscription, MESSAGES).await;
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
    })
    .await;
}
