//! Takes a batch of messages: finds places for its jobs, looks them up, and puts each on the line.

use std::{collections::VecDeque, sync::Arc};

use broker::{Acker, Outgoing, Received};
use domain::Job;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{
    Instrument,
    field::{Empty, display},
};

use crate::{
    end::{DeadReason, NotAttempted},
    in_flight::{InFlight, Message, Receipt},
    lane::{LaneKind, Lanes},
    line::Line,
    look_up::Found,
    shared::Shared,
    shared_ack::{FollowUp, Origin, SharedAck},
    suspects,
};

/// Takes the jobs of all lanes. Each job runs in a task of its own.
pub(crate) struct Intake {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) line: Arc<Line>,
    pub(crate) tasks: TaskTracker,
    /// How many deliveries are read at once, at most.
    pub(crate) most: usize,
}

impl Intake {
    /// Takes a batch of a lane. Waits for places for its jobs (backpressure). Attempts run in tasks of their own.
    pub(crate) async fn take(&self, kind: LaneKind, batch: Vec<Received>) {
        let mut waiting = self.open(kind, batch);
        while !waiting.is_empty() {
            let places = self.lanes.places(kind, waiting.len().min(self.most)).await;
            let mut begun = Begun { in_flight: &self.shared.in_flight, jobs: Vec::with_capacity(places.len()) };
            for ((job, ack, receipt), place) in waiting.drain(..places.len()).zip(places) {
                // Skips a job whose connection is lost: the broker redelivers its message.
                if !ack.is_usable() {
                    continue;
                }
                if self.shared.in_flight.begin(job, Message { ack, receipt, place: Some(place) }) {
                    begun.jobs.push((job, receipt));
                } else {
                    self.shared.metrics.not_attempted(NotAttempted::Duplicate);
                }
            }
            if begun.jobs.is_empty() {
                continue;
            }
            let Ok((found, read_at)) = self.line.look_up.all(&begun.jobs).await else { return };
            for ((job, receipt), found) in begun.jobs.drain(..).zip(found) {
                self.start(job, receipt, found, read_at);
            }
        }
    }

    fn start(&self, job: Job, receipt: Receipt, found: Found, read_at: Instant) {
        let Job { delivery, attempt } = job;
        let span = tracing::debug_span!("job", %delivery, attempt, webhook = Empty, traceparent = Empty);
        if let Found::Delivery(loaded) = &found {
            span.record("webhook", display(loaded.destination.webhook));
            span.record("traceparent", loaded.traceparent.as_ref().map(display));
        }
        self.tasks.spawn(Arc::clone(&self.line).run(job, receipt, found, read_at).instrument(span));
    }

    /// Reads the jobs of messages. Parks a message that holds none. Takes apart one that was handed out too often.
    /// Hands marked messages, which jobs of the bulk lane have left, from the main lane to the bulk lane.
    fn open(&self, lane: LaneKind, batch: Vec<Received>) -> VecDeque<(Job, SharedAck, Receipt)> {
        let (mut opened, mut replaced, mut to_bulk) = (VecDeque::with_capacity(batch.len()), Vec::new(), 0);
        for Received { body, acker, handed_out_before, is_of_bulk, .. } in batch {
            let origin = if is_of_bulk || lane == LaneKind::Bulk { Origin::Bulk } else { Origin::Other };
            if is_of_bulk && lane == LaneKind::Main {
                let there = Outgoing { queue: self.shared.names.bulk(), body, ..Outgoing::default() };
                to_bulk += 1;
                replaced.push((acker, origin, vec![there.carrying(handed_out_before)]));
                continue;
            }
            match Job::parse(&body) {
                Ok(jobs) if jobs.len() > 1 && suspects::must_be_split(handed_out_before) => {
                    let alone = |job| {
                        Outgoing { queue: lane.queue(&self.shared.names), ..self.shared.names.job(job) }
                            .carrying(handed_out_before)
                    };
                    replaced.push((acker, origin, jobs.into_iter().map(alone).collect()));
                }
                Ok(jobs) => {
                    let receipt = Receipt { lane, handed_out_before };
                    let acks = SharedAck::of(acker, origin, jobs.len());
                    opened.extend(jobs.into_iter().zip(acks).map(|(job, ack)| (job, ack, receipt)));
                }
                Err(error) => {
                    tracing::error!(%error, "a message that is no job is moved to the dead-letter queue");
                    let dead = DeadReason::NoJob(error);
                    self.shared.metrics.not_attempted(dead.as_str());
                    replaced.push((acker, origin, vec![self.line.settler.dead_letter_of(body, &dead)]));
                }
            }
        }
        self.replace(replaced, to_bulk);
        opened
    }

    /// Publishes other messages in place of each, then acknowledges it. If its connection is lost, publishes nothing:
    /// the broker redelivers it. Runs in a task of its own, as a queue may refuse. Counts `to_bulk` jobs as handed on
    /// once they are.
    fn replace(&self, replaced: Vec<(Acker, Origin, Vec<Outgoing>)>, to_bulk: u64) {
        if replaced.is_empty() {
            return;
        }
        let (settler, handed_on) = (Arc::clone(&self.line.settler), self.shared.metrics.moved_to_bulk.clone());
        let parts = replaced.into_iter().flat_map(|(acker, origin, others)| {
            let acks = SharedAck::of(acker, origin, others.len());
            acks.into_iter().zip(others.into_iter().map(|other| Some(FollowUp::Message(other))))
        });
        let parts: Vec<_> = parts.collect();
        let watched = self.shared.essential.watch("settling");
        self.tasks.spawn(async move {
            let _watched = watched;
            if settler.publish_then_ack(parts).await.is_some() {
                handed_on.inc_by(to_bulk);
            }
        });
    }
}

/// Jobs that are under way and have no task yet. When this is dropped, as at the shutdown, the rest of them is under way no
/// more, and their messages are requeued.
struct Begun<'i> {
    in_flight: &'i InFlight,
    jobs: Vec<(Job, Receipt)>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        for (job, _) in self.jobs.drain(..) {
            drop(self.in_flight.finish(job));
        }
    }
}
