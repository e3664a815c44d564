//! The acknowledgements of one channel. One frame covers many messages where no undone message lies between them, as
//! each frame costs a quorum queue an entry of its log.

mod tracker;

use std::{sync::Arc, time::Duration};

use lapin::{
    Channel,
    options::{BasicAckOptions, BasicNackOptions},
};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, timeout_at};

use crate::{
    acks::tracker::{Ack, Tracker, number_of},
    polled_once::{PolledOnce, poll_once},
    stats::Stats,
};

/// The maximum time to hand an acknowledgement to the system. The broker does not answer it.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Acknowledges what one channel has delivered. Each channel has one, and all acknowledgements of the channel go
/// through it.
#[derive(Debug)]
pub(crate) struct Acks {
    stats: Stats,
    /// The number of messages that are delivered and not acknowledged.
    pub(crate) held: Gauge,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Gone once the consumer gives it up: a channel stays open as long as anybody has it.
    channel: Option<Channel>,
    tracker: Tracker,
    /// Messages to be requeued, until the consumers are cancelled.
    dropped: Option<Vec<u64>>,
}

impl Acks {
    /// Starts for a channel that has not delivered anything yet. Counts in `held` what it delivers.
    pub(crate) fn new(channel: Channel, stats: &Stats, held: Gauge) -> Arc<Self> {
        let state = State { channel: Some(channel), tracker: Tracker::default(), dropped: Some(Vec::new()) };
        Arc::new(Self { stats: stats.clone(), held, state: Mutex::new(state) })
    }

    /// Whether the channel is still open.
    pub(crate) fn is_usable(&self) -> bool {
        self.state.lock().channel.as_ref().is_some_and(|channel| channel.status().connected())
    }

    /// Whether all messages up to a tag are acknowledged.
    pub(crate) fn are_done(&self, tag: u64) -> bool {
        self.state.lock().tracker.are_done(tag)
    }

    /// Lets the channel close. Nothing is acknowledged after that.
    pub(crate) fn end(&self) {
        let channel = self.state.lock().channel.take();
        drop(channel);
    }

    /// Requeues a message that nobody will acknowledge, once the consumers are cancelled: before that, the broker would
    /// deliver the message to this process again.
    pub(crate) fn requeue(&self, tag: u64) {
        let mut state = self.state.lock();
        match &mut state.dropped {
            Some(dropped) => dropped.push(tag),
            None => state.nack(&[tag]),
        }
    }

    /// The consumers are cancelled: requeues the messages that were dropped, and from now on each that is dropped.
    pub(crate) fn consumers_cancelled(&self) {
        let mut state = self.state.lock();
        let dropped = state.dropped.take().unwrap_or_default();
        state.nack(&dropped);
    }

    /// Acknowledges messages by their tags. An acknowledgement that cannot be sent is counted as lost. This is no
    /// error: the broker hands the message out again. Cancelling the call does not lose the acknowledgements that it
    /// has begun.
    pub(crate) async fn acknowledge(&self, tags: &[u64]) {
        let channel = self.state.lock().channel.clone();
        let Some(channel) = channel else {
            self.stats.lost_acks.inc_by(number_of(tags));
            return;
        };
        // An acknowledgement may wait for ever if its connection ends.
        let deadline = Instant::now() + ACK_TIMEOUT;
        for (ack, sent) in self.queue(&channel, tags) {
            // What is queued on a connection that is open is sent later.
            let is_lost = match timeout_at(deadline, sent.done()).await {
                Ok(sent) => sent.is_err(),
                Err(_) => !channel.status().connected(),
            };
            if is_lost {
                self.stats.lost_acks.inc_by(ack.messages);
            }
        }
    }

    /// Decides and queues under one lock, so that frames leave in the order of the decisions. The broker closes a
    /// channel that acknowledges a message twice: singly, after another call's frame has covered it.
    fn queue<'a>(
        &self,
        channel: &'a Channel,
        tags: &[u64],
    ) -> Vec<(Ack, PolledOnce<impl Future<Output = lapin::Result<()>> + use<'a>>)> {
        let mut state = self.state.lock();
        let queue = |ack: Ack| {
            let options = BasicAckOptions { multiple: ack.messages > 1 };
            let sent = poll_once(channel.basic_ack(ack.tag, options));
            (ack, sent)
        };
        state.tracker.done(tags).into_iter().map(queue).collect()
    }
}

impl State {
    /// Requeues messages. The broker does not answer, and requeues them anyway once the channel is closed.
    fn nack(&mut self, tags: &[u64]) {
        let Some(channel) = &self.channel else { return };
        self.tracker.requeued(tags);
        for tag in tags {
            let _sent = poll_once(channel.basic_nack(*tag, BasicNackOptions { multiple: false, requeue: true }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        sync::mpsc,
    };

    use lapin::{BasicProperties, ConnectionProperties, options::BasicPublishOptions};
    use tls::ClientFiles;
    use tokio::{sync::oneshot, task::spawn_blocking};

    use super::*;
    use crate::dial;

    const BASIC_ACK: &[u8] = b"\x00\x3c\x00\x50";
    /// More bytes than the buffers of a connection hold.
    const OVERFLOW_BYTES: usize = 32 * 1024 * 1024;

    fn send(peer: &mut TcpStream, channel: u8, method: &[u8]) {
        let length = u32::try_from(method.len()).unwrap().to_be_bytes();
        peer.write_all(&[&[1, 0, channel][..], &length, method, &[0xce]].concat()).unwrap();
    }

    /// Reads the client's next frame, and returns its content.
    fn read(peer: &mut TcpStream) -> Vec<u8> {
        let mut head = [0; 7];
        peer.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut content = vec![0; usize::try_from(length).unwrap() + 1];
        peer.read_exact(&mut content).unwrap();
        content
    }

    /// Plays a node until the client's channel is open.
    fn accept(listener: &TcpListener) -> TcpStream {
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        peer.read_exact(&mut [0; 8]).unwrap();
        let start = b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
        let (tune, open_ok) = (b"\0\x0a\0\x1e\0\0\0\x02\0\0\0\0", b"\0\x0a\0\x29\0");
        for (method, answers) in [(&start[..], 1), (tune, 2), (open_ok, 1)] {
            send(&mut peer, 0, method);
            (0..answers).for_each(|_| drop(read(&mut peer)));
        }
        send(&mut peer, 1, b"\0\x14\0\x0b\0\0\0\0");
        peer
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_acknowledgement_that_is_sent_late_is_not_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("amqp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let ((begun, has_begun), (go_on, goes_on)) = (oneshot::channel(), mpsc::channel());
        let node = spawn_blocking(move || {
            let mut peer = accept(&listener);
            read(&mut peer);
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            while !read(&mut peer).starts_with(BASIC_ACK) {}
        });
        let files = ClientFiles::default();
        let connecting = dial::connect(uri, ConnectionProperties::default(), &files, Duration::from_secs(10));
        let connection = connecting.await.unwrap();
        let (channel, stats) = (connection.create_channel().await.unwrap(), Stats::default());
        let acks = Acks::new(channel.clone(), &stats, Gauge::default());
        // The node reads nothing after the first frame of this message, and so no acknowledgement behind it.
        let (body, (options, properties)) =
            (vec![0; OVERFLOW_BYTES], <(BasicPublishOptions, BasicProperties)>::default());
        let _published = poll_once(channel.basic_publish("".into(), "queue".into(), options, &body, properties));
        has_begun.await.unwrap();
        acks.acknowledge(&[1]).await;
        assert_eq!(stats.lost_acks.get(), 0);
        go_on.send(()).unwrap();
        node.await.unwrap();
    }
}
