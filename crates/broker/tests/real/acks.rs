//! Bulk acknowledgements. A wrong one would close the channel, or lose a message.

use std::time::Duration;

use std::collections::BTreeSet;

use broker::{Acker, Attachment, BatchLimit, Prefetch, Received, Subscription};
use futures_util::FutureExt;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    NOTHING_WENT_WRONG, WAIT_TIMEOUT, counters, delete, eventually, number, publish, wait_for_depth, with_broker,
};

const MESSAGES: usize = 500;
/// How many messages may wait for their acknowledgement.
const PREFETCH: Prefetch = Prefetch::of(500);
const TASKS: usize = 8;
const ROUNDS: usize = 20;
/// The messages that are left out: one in the middle, neighbours, and one near the end.
const LEFT_OUT: [usize; 4] = [301, 400, 401, 490];
const LIMIT: BatchLimit = BatchLimit { messages: 50, bytes: 1_000_000, linger: Duration::ZERO };

/// Takes `count` messages.
async fn take(subscription: &mut Subscription, count: usize) -> Vec<Received> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let batch = timeout(WAIT_TIMEOUT, subscription.next_batch(LIMIT)).await;
        taken.extend(batch.unwrap_or_else(|_| panic!("{} of {count} came", taken.len())).unwrap());
    }
    assert_eq!(taken.len(), count);
    taken
}

/// The same. Checks that none was delivered before, as the messages of a closed channel would be.
async fn take_new(subscription: &mut Subscription, count: usize) -> Vec<Received> {
    let taken = take(subscription, count).await;
    assert!(taken.iter().all(|message| !message.redelivered), "the channel was closed");
    taken
}

/// Acknowledges from several tasks at once, in shuffled chunks. Some calls are cancelled as soon as they have begun.
async fn acknowledge(messages: Vec<Received>, random: &mut fastrand::Rng) {
    let mut ackers: Vec<Acker> = messages.into_iter().map(|message| message.acker).collect();
    for window in ackers.chunks_mut(20) {
        random.shuffle(window);
    }
    let mut chunks: Vec<Vec<Vec<Acker>>> = (0..TASKS).map(|_| Vec::new()).collect();
    let mut ackers = ackers.into_iter().peekable();
    while ackers.peek().is_some() {
        chunks[random.usize(..TASKS)].push(ackers.by_ref().take(random.usize(1..5)).collect());
    }
    let mut tasks = JoinSet::new();
    for chunks in chunks {
        tasks.spawn(async move {
            for (index, chunk) in chunks.into_iter().enumerate() {
                let acknowledged = Acker::ack_all(chunk);
                if index % 4 == 3 {
                    let _ = acknowledged.now_or_never();
                } else {
                    acknowledged.await;
                }
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_acknowledged_is_gone_and_what_was_not_comes_again() {
    with_broker(async |broker| {
        let mut random = fastrand::Rng::with_seed(7);
        let mut subscription = broker.subscribe(broker.names().main(), PREFETCH, Attachment::default());
        // While none is left out, the tasks' single and bulk acknowledgements overlap all the time.
        for _ in 0..ROUNDS {
            publish(broker, 0..MESSAGES, 1).await;
            acknowledge(take_new(&mut subscription, MESSAGES).await, &mut random).await;
        }
        publish(broker, 0..MESSAGES, 1).await;
        let messages = take_new(&mut subscription, MESSAGES).await;
        let (left_out, done): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| LEFT_OUT.contains(&number(message)));
        acknowledge(done, &mut random).await;
        // The broker delivers this many only if it has taken every acknowledgement.
        let more = MESSAGES - LEFT_OUT.len();
        publish(broker, MESSAGES..MESSAGES + more, 1).await;
        acknowledge(take_new(&mut subscription, more).await, &mut random).await;
        assert!(left_out.iter().all(|message| message.acker.is_usable()), "the channel is the same");
        subscription.into_closing().close().await;
        assert!(!left_out[0].acker.is_usable());
        assert_eq!(counters(broker), NOTHING_WENT_WRONG);

        wait_for_depth(broker, LEFT_OUT.len() as u32).await;
        let mut subscription = broker.subscribe(broker.names().main(), PREFETCH, Attachment::default());
        let again = take(&mut subscription, LEFT_OUT.len()).await;
        assert_eq!(again.iter().map(number).collect::<BTreeSet<_>>(), BTreeSet::from(LEFT_OUT));
        assert!(again.iter().all(|message| message.redelivered && message.delivery_count == 1));

        // These belong to two channels, one of which is gone.
        Acker::ack_all(left_out.into_iter().chain(again).map(|message| message.acker).collect()).await;
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
        assert!(counters(broker).ends_with("webhooks_broker_lost_acks_total 4"), "{}", counters(broker));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_that_nobody_has_begun_are_requeued_at_the_stop_and_dropped_ones_when_they_are_dropped() {
    with_broker(async |broker| {
        let mut subscription = broker.subscribe(broker.names().main(), PREFETCH, Attachment::default());
        publish(broker, 0..MESSAGES, 1).await;
        wait_for_depth(broker, 0).await;
        let limit = BatchLimit { messages: 10, ..LIMIT };
        let mut held = timeout(WAIT_TIMEOUT, subscription.next_batch(limit)).await.unwrap().unwrap();
        let closing = subscription.into_closing();
        wait_for_depth(broker, (MESSAGES - held.len()) as u32).await;
        drop(held.pop());
        wait_for_depth(broker, (MESSAGES - held.len()) as u32).await;
        let done: BTreeSet<_> = held.iter().map(number).collect();
        Acker::ack_all(held.into_iter().map(|message| message.acker).collect()).await;
        closing.close().await;

        let mut next = broker.subscribe(broker.names().main(), PREFETCH, Attachment::default());
        let again = take(&mut next, MESSAGES - done.len()).await;
        assert!(again.iter().all(|message| message.redelivered && !done.contains(&number(message))));
        Acker::ack_all(again.into_iter().map(|message| message.acker).collect()).await;
        next.into_closing().close().await;
        wait_for_depth(broker, 0).await;
        assert_eq!(counters(broker), NOTHING_WENT_WRONG);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_held_does_not_hold_the_channel_of_a_consumer_that_was_thrown_off() {
    with_broker(async |broker| {
        let queue = broker.names().main();
        let mut subscription = broker.subscribe(queue.clone(), PREFETCH, Attachment::default());
        publish(broker, 0..2, 1).await;
        let held = take_new(&mut subscription, 2).await;
        delete([queue], []).await;
        eventually("the channel is let go", async || !held[0].acker.is_usable()).await;
        Acker::ack_all(held.into_iter().map(|message| message.acker).collect()).await;
        assert!(counters(broker).ends_with("webhooks_broker_lost_acks_total 2"), "{}", counters(broker));

        publish(broker, 2..3, 1).await;
        let next = take_new(&mut subscription, 1).await.remove(0);
        assert_eq!(number(&next), 2);
        Acker::ack_all(vec![next.acker]).await;
        subscription.into_closing().close().await;
        wait_for_depth(broker, 0).await;
    })
    .await;
}
