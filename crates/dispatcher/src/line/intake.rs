//! Takes a batch of messages: finds places for its jobs, looks them up, and puts each on the line.

use std::{collections::VecDeque, sync::Arc};

use broker::{Acker, Outgoing, Received};
use domain::{Job, error_chain};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{
    Instrument,
    field::{Empty, display},
};

use crate::{
    lane::LaneKind,
    line::{
        bundle::{FollowUp, JobAck, Origin},
        context::LineContext,
        in_flight::{Message, Receipt, UnderWay},
        look_up::Lookup,
        outcome::DeadReason,
        steps::Line,
        suspects,
    },
    metrics::{NotAttempted, size},
};

/// Takes the jobs of all lanes. Each job runs in a task of its own.
pub(crate) struct Intake {
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
            let places = self.line.lanes.places(kind, waiting.len().min(self.most)).await;
            let mut begun = Vec::with_capacity(places.len());
            for ((job, ack, receipt), place) in waiting.drain(..places.len()).zip(places) {
                // Skips a job whose connection is lost: the broker redelivers its message.
                if !ack.is_usable() {
                    continue;
                }
                match self.line.context.in_flight.begin(job, Message { ack, receipt, place: Some(place) }) {
                    Some(job) => begun.push(job),
                    None => self.line.context.metrics.count_not_attempted(NotAttempted::Duplicate),
                }
            }
            if begun.is_empty() {
                continue;
            }
            let ids: Vec<_> = begun.iter().map(|job| job.job().delivery).collect();
            self.line.context.metrics.read_batch.observe(size(ids.len()));
            let Ok((found, read_at)) = self.line.context.look_up(&ids).await else { return };
            for (job, found) in begun.into_iter().zip(found) {
                self.start(job, found, read_at);
            }
        }
    }

    fn start(&self, job: UnderWay, found: Lookup, read_at: Instant) {
        let Job { delivery, attempt } = job.job();
        let span = tracing::debug_span!("job", %delivery, attempt, webhook = Empty, traceparent = Empty);
        if let Lookup::Delivery(loaded) = &found {
            span.record("webhook", display(loaded.destination.webhook));
            span.record("traceparent", loaded.traceparent.as_ref().map(display));
        }
        self.tasks.spawn(Arc::clone(&self.line).run(job, found, read_at).instrument(span));
    }

    /// Reads the jobs of messages. Parks a message that holds none. Takes apart one that was delivered too often.
    /// Hands marked messages, which jobs of the bulk lane have left, from the main lane to the bulk lane.
    fn open(&self, lane: LaneKind, batch: Vec<Received>) -> VecDeque<(Job, JobAck, Receipt)> {
        let LineContext { names, metrics, .. } = &*self.line.context;
        let mut opened = VecDeque::with_capacity(batch.len());
        let (mut replaced, mut to_bulk) = (Vec::new(), Vec::new());
        for Received { body, acker, delivery_count, is_of_bulk, .. } in batch {
            let origin = if is_of_bulk || lane == LaneKind::Bulk { Origin::Bulk } else { Origin::Other };
            if is_of_bulk && lane == LaneKind::Main {
                let there = Outgoing { routing_key: names.bulk(), body, ..Outgoing::default() };
                to_bulk.push((acker, origin, vec![there.carrying(delivery_count)]));
                continue;
            }
            match Job::parse(&body) {
                Ok(jobs) if jobs.len() > 1 && suspects::must_be_split(delivery_count) => {
                    let message = |job| Outgoing { routing_key: lane.queue(names), ..names.job(job) };
                    let alone = |job| message(job).carrying(delivery_count);
                    replaced.push((acker, origin, jobs.into_iter().map(alone).collect()));
                }
                Ok(jobs) => {
                    let receipt = Receipt { lane, delivery_count };
                    let acks = JobAck::of(acker, origin, jobs.len());
                    opened.extend(jobs.into_iter().zip(acks).map(|(job, ack)| (job, ack, receipt)));
                }
                Err(error) => {
                    let reason = error_chain(&error);
                    tracing::error!(error = reason, "a message that is no job is moved to the dead-letter queue");
                    let dead = DeadReason::NoJob(error);
                    metrics.count_not_attempted(dead.as_str());
                    replaced.push((acker, origin, vec![self.line.settler.dead_letter(body, &dead)]));
                }
            }
        }
        self.replace(replaced, None);
        self.replace(to_bulk, Some(metrics.moved_to_bulk.clone()));
        opened
    }

    /// Publishes other messages in place of each, then acknowledges it. If its connection is lost, publishes nothing:
    /// the broker redelivers it. Runs in a task of its own, as a queue may refuse. `count` counts those that are replaced.
    fn replace(&self, replaced: Vec<(Acker, Origin, Vec<Outgoing>)>, count: Option<Counter>) {
        if replaced.is_empty() {
            return;
        }
        let parts = replaced.into_iter().flat_map(|(acker, origin, others)| {
            let parts = JobAck::of(acker, origin, others.len());
            parts.into_iter().zip(others.into_iter().map(move |other| Some(FollowUp::Message(origin.marked(other)))))
        });
        let parts: Vec<_> = parts.collect();
        let (settler, watched) = (Arc::clone(&self.line.settler), self.line.context.essential.watch("settling"));
        self.tasks.spawn(async move {
            let _watched = watched;
            settler.publish_then_ack(parts, count.as_ref()).await;
        });
    }
}
