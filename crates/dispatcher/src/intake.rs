//! Takes a batch of messages: finds places for its jobs, looks them up, and puts each on the line.

use std::{collections::VecDeque, sync::Arc};

use broker::{Acker, Outgoing, Received};
use domain::Job;
use service_kit::publishing::Publication;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{
    Instrument,
    field::{Empty, display},
};

use crate::{
    end::{DeadReason, NotAttempted},
    in_flight::{Message, Receipt, UnderWay},
    lane::{LaneKind, Lanes},
    line::Line,
    look_up::Found,
    shared::Shared,
    shared_ack::{Origin, SharedAck},
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
            let mut begun = Vec::with_capacity(places.len());
            for ((job, ack, receipt), place) in waiting.drain(..places.len()).zip(places) {
                // Skips a job whose connection is lost: the broker redelivers its message.
                if !ack.is_usable() {
                    continue;
                }
                match self.shared.in_flight.begin(job, Message { ack, receipt, place: Some(place) }) {
                    Some(job) => begun.push(job),
                    None => self.shared.metrics.not_attempted(NotAttempted::Duplicate),
                }
            }
            if begun.is_empty() {
                continue;
            }
            let ids: Vec<_> = begun.iter().map(|job| job.job().delivery).collect();
            let Ok((found, read_at)) = self.line.look_up.all(&ids).await else { return };
            for (job, found) in begun.into_iter().zip(found) {
                self.start(job, found, read_at);
            }
        }
    }

    fn start(&self, job: UnderWay, found: Found, read_at: Instant) {
        let Job { delivery, attempt } = job.job();
        let span = tracing::debug_span!("job", %delivery, attempt, webhook = Empty, traceparent = Empty);
        if let Found::Delivery(loaded) = &found {
            span.record("webhook", display(loaded.destination.webhook));
            span.record("traceparent", loaded.traceparent.as_ref().map(display));
        }
        self.tasks.spawn(Arc::clone(&self.line).run(job, found, read_at).instrument(span));
    }

    /// Reads the jobs of messages. Parks a message that holds none. Takes apart one that was handed out too often.
    /// Hands marked messages, which jobs of the bulk lane have left, from the main lane to the bulk lane.
    fn open(&self, lane: LaneKind, batch: Vec<Received>) -> VecDeque<(Job, SharedAck, Receipt)> {
        let mut opened = VecDeque::with_capacity(batch.len());
        let (mut replaced, mut to_bulk) = (Vec::new(), Vec::new());
        for Received { body, acker, handed_out_before, is_of_bulk, .. } in batch {
            let origin = if is_of_bulk || lane == LaneKind::Bulk { Origin::Bulk } else { Origin::Other };
            if is_of_bulk && lane == LaneKind::Main {
                let there = Outgoing { queue: self.shared.names.bulk(), body, ..Outgoing::default() };
                to_bulk.push((acker, origin, vec![there.carrying(handed_out_before)]));
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
                    replaced.push((acker, origin, vec![self.line.settler.dead_letter(body, &dead)]));
                }
            }
        }
        self.replace(replaced, |_| {});
        let moved = self.shared.metrics.moved_to_bulk.clone();
        self.replace(to_bulk, move |messages| {
            moved.inc_by(messages);
        });
        opened
    }

    /// Publishes other messages in place of each, then acknowledges it. If its connection is lost, publishes nothing:
    /// the broker redelivers it. Runs in a task of its own, as a queue may refuse. `count` gets the number of messages
    /// that were replaced.
    fn replace(&self, replaced: Vec<(Acker, Origin, Vec<Outgoing>)>, count: impl FnOnce(u64) + Send + 'static) {
        if replaced.is_empty() {
            return;
        }
        let settler = Arc::clone(&self.line.settler);
        let publications = replaced.into_iter().flat_map(|(acker, origin, others)| {
            let source = Arc::new(acker);
            let publication =
                move |other| Publication { sources: vec![Arc::clone(&source)], content: origin.marked(other) };
            others.into_iter().map(publication)
        });
        let publications: Vec<_> = publications.collect();
        let watched = self.shared.essential.watch("settling");
        self.tasks.spawn(async move {
            let _watched = watched;
            if let Some(messages) = settler.replace(publications).await {
                count(u64::try_from(messages).unwrap_or_default());
            }
        });
    }
}
