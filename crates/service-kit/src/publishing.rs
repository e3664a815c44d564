//! Publishes messages, and only then hands over their sources (the messages they come from) to be acknowledged.

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use broker::{Backoff, Outgoing, Publisher};
use domain::error_chain;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long confirmed messages wait for the rest, to be acknowledged together: runs of acknowledgements are cheap.
const HELD_UP_AFTER: Duration = Duration::from_millis(500);

/// A message to be published, and the sources that wait for its confirm. A source is the right to acknowledge. It is
/// handed over when the last publication that holds it is confirmed.
pub struct Publication<S, T> {
    /// The sources that wait for it, if any.
    pub sources: Vec<Arc<S>>,
    /// What the message is made of.
    pub content: T,
}

/// Publishes messages until the broker has confirmed each.
pub struct Publishing<'a> {
    /// What is published, for the log.
    pub what: &'static str,
    /// The publisher.
    pub publisher: &'a Publisher,
    /// Cancelled to give up.
    pub abandon: &'a CancellationToken,
}

impl Publishing<'_> {
    /// Publishes messages, and tries unconfirmed ones again, for as long as it takes. A queue that refuses holds up
    /// only the sources of its own messages. A confirmed message is not sent again.
    ///
    /// `message_of` makes the message at each try, or returns `None` when nobody wants it any more. Then the
    /// publication is dropped with its hold on its sources: one that nothing else holds is not acknowledged.
    ///
    /// `acknowledge` takes the sources whose messages are confirmed, with `ready`, which wait for none. It is called
    /// once with all. When something is held up, it is called with those that are there, possibly none, and again as
    /// others come.
    ///
    /// Returns `None` when it was abandoned. What was not given to `acknowledge` must then not be acknowledged.
    pub async fn until_confirmed<S, T, F: Future<Output = ()>>(
        &self,
        publications: Vec<Publication<S, T>>,
        mut ready: Vec<S>,
        message_of: impl for<'t> Fn(&'t Publication<S, T>) -> Option<Cow<'t, Outgoing>>,
        acknowledge: impl Fn(Vec<S>) -> F,
    ) -> Option<()> {
        let mut queues = HashMap::<String, Vec<Publication<S, T>>>::new();
        for publication in publications {
            let Some(queue) = message_of(&publication).map(|message| message.routing_key.clone()) else { continue };
            queues.entry(queue).or_default().push(publication);
        }
        let part = |(_, publications)| QueuePublications { publications, tries: 0, backoff: Backoff::default() };
        let mut tries: FuturesUnordered<_> =
            queues.into_iter().map(|queue| self.try_once(part(queue), &message_of)).collect();
        let (mut is_held_up, held_up_at) = (false, Instant::now() + HELD_UP_AFTER);
        loop {
            tokio::select! {
                biased;
                () = self.abandon.cancelled() => return None,
                tried = tries.next() => match tried {
                    Some((part, confirmed)) => {
                        let sources = confirmed.into_iter().flat_map(|publication| publication.sources);
                        ready.extend(sources.filter_map(Arc::into_inner));
                        if !part.publications.is_empty() {
                            is_held_up = true;
                            tries.push(self.try_once(part, &message_of));
                        }
                    }
                    None => {
                        acknowledge(ready).await;
                        return Some(());
                    }
                },
                () = sleep_until(held_up_at), if !is_held_up => is_held_up = true,
            }
            if is_held_up && !tries.is_empty() {
                acknowledge(std::mem::take(&mut ready)).await;
            }
        }
    }

    /// Does one try, after a pause unless it is the first. Returns what is left, and what was confirmed.
    async fn try_once<S, T>(
        &self,
        mut part: QueuePublications<S, T>,
        message_of: &impl for<'t> Fn(&'t Publication<S, T>) -> Option<Cow<'t, Outgoing>>,
    ) -> (QueuePublications<S, T>, Vec<Publication<S, T>>) {
        if part.tries > 0 {
            part.backoff.pause().await;
        }
        part.tries += 1;
        let wanted = part.publications.iter().enumerate().filter_map(|(place, one)| Some((place, message_of(one)?)));
        let (places, messages): (Vec<_>, Vec<_>) = wanted.unzip();
        let left = match self.publisher.publish_patiently(&messages).await {
            Ok(()) => Vec::new(),
            Err(error) => {
                // Logs fewer and fewer of the tries: a queue may refuse for hours.
                if part.tries.is_power_of_two() {
                    let (what, tries) = (self.what, part.tries);
                    tracing::warn!(error = error_chain(&error), tries, "{what} failed; trying again");
                }
                error.places
            }
        };
        drop(messages);
        let mut confirmed = Vec::new();
        for (place, publication) in std::mem::take(&mut part.publications).into_iter().enumerate() {
            match places.binary_search(&place) {
                Ok(at) if left.binary_search(&at).is_ok() => part.publications.push(publication),
                Ok(_) => confirmed.push(publication),
                Err(_) => {}
            }
        }
        (part, confirmed)
    }
}

/// The publications that went to one queue at the first try.
struct QueuePublications<S, T> {
    publications: Vec<Publication<S, T>>,
    tries: u32,
    backoff: Backoff,
}
