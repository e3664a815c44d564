//! The broker's answers to messages that were published together.

use std::time::Duration;

use futures_util::FutureExt;
use lapin::{Channel, Confirmation, PublisherConfirm, options::BasicPublishOptions};

use crate::{
    error::PublishError,
    message::Outgoing,
    polled_once::{PolledOnce, poll_once},
};

/// What became of one message.
pub(crate) type ConfirmResult = Result<(), PublishError>;

/// The confirms of a window, in the order of its messages.
pub(crate) struct Confirms {
    waiting: Vec<Option<PublisherConfirm>>,
    /// The answers that have come.
    answers: Vec<Option<ConfirmResult>>,
    /// The routing key of a message that the broker returned.
    returned: Option<String>,
    /// Set when the broker confirms or refuses a message.
    pub(crate) has_news: bool,
    /// True if the broker refused a message.
    pub(crate) is_refused: bool,
    /// True if an answer shows that the connection or the channel failed. A refusal does not.
    pub(crate) is_faulty: bool,
}

/// Queues messages so that they are sent together. Sent one by one, each would cost a change of threads there and back.
pub(crate) fn queue<'a>(
    channel: &'a Channel,
    exchange: &str,
    messages: &[&'a Outgoing],
) -> Vec<PolledOnce<impl Future<Output = lapin::Result<PublisherConfirm>> + use<'a>>> {
    let queue = |message: &&'a Outgoing| {
        // Only a notice whose queues are all gone is returned, as the exchange has an alternate exchange. Then the
        // connection is built anew, and with it the queues.
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let (exchange, routing_key) = (exchange.into(), message.routing_key.as_str().into());
        poll_once(channel.basic_publish(exchange, routing_key, options, &message.body, message.properties()))
    };
    messages.iter().map(queue).collect()
}

/// Waits until messages are sent, from the last one on: the others are sent by then, so the caller is woken once.
pub(crate) async fn sent<F>(queued: Vec<PolledOnce<F>>) -> lapin::Result<Confirms>
where
    F: Future<Output = lapin::Result<PublisherConfirm>>,
{
    let mut waiting = Vec::with_capacity(queued.len());
    for sent in queued.into_iter().rev() {
        waiting.push(Some(sent.done().await?));
    }
    waiting.reverse();
    let answers = waiting.iter().map(|_| None).collect();
    Ok(Confirms { waiting, answers, returned: None, has_news: false, is_refused: false, is_faulty: false })
}

impl Confirms {
    /// Waits for all confirms, from the last one on. The answers that came are kept when the wait is cancelled.
    pub(crate) async fn wait(&mut self) {
        for place in (0..self.waiting.len()).rev() {
            if let Some(confirm) = &mut self.waiting[place] {
                let confirmation = confirm.await;
                self.note(place, confirmation);
            }
        }
    }

    /// Takes the confirms that came while a missing one was waited for.
    pub(crate) fn take_those_there(&mut self) {
        for place in 0..self.waiting.len() {
            if let Some(confirmation) = self.waiting[place].as_mut().and_then(FutureExt::now_or_never) {
                self.note(place, confirmation);
            }
        }
    }

    fn note(&mut self, place: usize, confirmation: lapin::Result<Confirmation>) {
        self.waiting[place] = None;
        let answer = match confirmation {
            Ok(Confirmation::Ack(None)) => Ok(()),
            Ok(Confirmation::Nack(None)) => Err(PublishError::Refused),
            Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
                let key = returned.routing_key.to_string();
                self.returned = Some(key.clone());
                Err(PublishError::Unroutable(key))
            }
            Ok(Confirmation::NotRequested) => Err(PublishError::NotConnected),
            Err(error) => Err(error.into()),
        };
        match answer {
            Ok(()) => self.has_news = true,
            Err(PublishError::Refused) => (self.has_news, self.is_refused) = (true, true),
            Err(_) => self.is_faulty = true,
        }
        self.answers[place] = Some(answer);
    }

    /// What became of each message. One without an answer has timed out after `waited`. lapin may give a returned
    /// message to another one's confirm, so with a returned message, no message is known to have a queue.
    pub(crate) fn into_answers(self, waited: Duration) -> Vec<ConfirmResult> {
        let missing: Vec<_> = self.waiting.into_iter().flatten().collect();
        if !missing.is_empty() {
            // lapin keeps confirms that nobody awaits for as long as the channel lives.
            tokio::spawn(futures_util::future::join_all(missing));
        }
        if let Some(key) = self.returned {
            return vec![Err(PublishError::Unroutable(key)); self.answers.len()];
        }
        self.answers.into_iter().map(|answer| answer.unwrap_or(Err(PublishError::Timeout(waited)))).collect()
    }
}
