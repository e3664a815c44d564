//! A consumer takes more messages at a time while they are small.

use std::time::Duration;

use std::collections::BTreeSet;

use broker::{Acker, Attachment, BatchLimit, Prefetch, Subscription};
use tokio::time::timeout;

use crate::{NOTHING_WENT_WRONG, SOON, counters, delete, eventually, number, publish, wait_for_depth, with_broker};

const SMALL: usize = 10;
const LARGE: usize = 40_000;
/// The prefetch for small messages.
const MOST: usize = 64;
/// The prefetch for large messages.
const ALWAYS: usize = 16;
const MESSAGES: usize = 400;
/// After this many messages of a size, the size is known.
const KNOWN: usize = 250;
const ROUNDS: usize = 10;

/// Takes and acknowledges `count` messages. Returns their numbers.
async fn finish(subscription: &mut Subscription, count: usize) -> Vec<usize> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let limit = BatchLimit { messages: (count - numbers.len()).min(20), bytes: usize::MAX, linger: Duration::ZERO };
        let batch = timeout(SOON, subscription.next_batch(limit)).await;
        let batch = batch.unwrap_or_else(|_| panic!("{} of {count} came", numbers.len())).unwrap();
        numbers.extend(batch.iter().map(number));
        Acker::ack_all(batch.into_iter().map(|message| message.acker).collect()).await;
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn more_are_handed_out_while_they_are_small_and_each_comes_once_however_often_that_changes() {
    with_broker(async |broker| {
        let prefetch = Prefetch::within(MOST as u16, ALWAYS * LARGE, LARGE);
        let mut subscription = broker.subscribe(broker.names().main(), prefetch, Attachment::default());
        let (mut published, mut came) = (0, BTreeSet::new());
        for _ in 0..ROUNDS {
            for (size, handed_out) in [(SMALL, MOST), (LARGE, ALWAYS)] {
                publish(broker, published..published + MESSAGES, size).await;
                published += MESSAGES;
                came.extend(finish(&mut subscription, KNOWN).await);
                let ready = MESSAGES - KNOWN - handed_out;
                wait_for_depth(broker, ready as u32).await;
                came.extend(finish(&mut subscription, MESSAGES - KNOWN).await);
            }
        }
        assert!(came.iter().copied().eq(0..published), "{} of {published}", came.len());
        publish(broker, published..published + MESSAGES, SMALL).await;
        finish(&mut subscription, MESSAGES).await;
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
        assert_eq!(counters(broker), NOTHING_WENT_WRONG);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_consumers_come_back_when_the_queue_was_deleted() {
    with_broker(async |broker| {
        let queue = broker.names().main();
        let prefetch = Prefetch::within(MOST as u16, ALWAYS * LARGE, LARGE);
        let mut subscription = broker.subscribe(queue.clone(), prefetch, Attachment::default());
        let in_full_swing = async |subscription: &mut Subscription| {
            publish(broker, 0..MESSAGES, SMALL).await;
            finish(subscription, KNOWN).await;
            wait_for_depth(broker, (MESSAGES - KNOWN - MOST) as u32).await;
        };
        in_full_swing(&mut subscription).await;
        let limit = BatchLimit { messages: 1, bytes: 1, linger: Duration::ZERO };
        let held = timeout(SOON, subscription.next_batch(limit)).await.unwrap().unwrap().remove(0);
        delete([queue.clone()], []).await;
        eventually("the channel is let go", async || !held.acker.is_usable()).await;
        in_full_swing(&mut subscription).await;
        finish(&mut subscription, MESSAGES - KNOWN).await;
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
    })
    .await;
}
