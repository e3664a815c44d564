//! What jobs pass through, put together.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Publisher};
use domain::{Destinations, RetrySchedule};
use egress::Egress;
use ledger::{Attempted, Ledger, SecretKeys};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::Sender,
    end::Move,
    in_flight::InFlight,
    intake::Intake,
    lane::{Lanes, Slots},
    line::Line,
    look_up::LookUp,
    metrics::Metrics,
    mover::Mover,
    record::Recorder,
    settle::Settler,
    shared::Shared,
    stamps::Stamps,
    suspects::Suspects,
};

/// What the settings say, and what they lead to.
pub(crate) struct Parts {
    pub(crate) ledger: Ledger,
    pub(crate) keys: Arc<SecretKeys>,
    pub(crate) egress: Egress,
    pub(crate) destinations: Destinations,
    pub(crate) schedule: RetrySchedule,
    pub(crate) main: Slots,
    pub(crate) slow: Slots,
    /// How many jobs are read, or recorded, at once.
    pub(crate) batch: usize,
    /// How long the ledger keeps a delivery.
    pub(crate) keep: Duration,
}

/// The steps that run by themselves, with the channels in between.
pub(crate) struct Pipeline {
    pub(crate) intake: Intake,
    pub(crate) recorder: Recorder,
    pub(crate) attempts: mpsc::Receiver<Attempted>,
    pub(crate) mover: Mover,
    pub(crate) moves: mpsc::Receiver<Move>,
    /// The jobs under way.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

impl Pipeline {
    /// `broken` is cancelled when a step panics that all jobs need.
    pub(crate) fn new(
        parts: &Parts,
        broker: &Broker,
        publisher: &Publisher,
        metrics: &Metrics,
        broken: &CancellationToken,
    ) -> Self {
        let jobs = usize::from(parts.main.slots) + usize::from(parts.slow.slots);
        let ((attempts_sender, attempts), (moves_sender, moves)) = (mpsc::channel(jobs), mpsc::channel(jobs));
        let tasks = TaskTracker::new();
        let shared = Arc::new(Shared {
            ledger: parts.ledger.clone(),
            names: broker.names().clone(),
            schedule: parts.schedule.clone(),
            in_flight: InFlight::new(metrics.in_flight.clone()),
            metrics: metrics.clone(),
            keep: parts.keep,
            abandon: CancellationToken::new(),
        });
        let lanes = Arc::new(Lanes::new(parts.main, parts.slow));
        let stamps = Arc::new(Stamps::new(Arc::clone(&shared)));
        let settler = Arc::new(Settler { publisher: publisher.clone(), shared: Arc::clone(&shared) });
        let recorder = Recorder { shared: Arc::clone(&shared), settler: Arc::clone(&settler), broken: broken.clone() };
        let mover = Mover { stamps: Arc::clone(&stamps), settler: Arc::clone(&settler), broken: broken.clone() };
        let line = Line {
            look_up: LookUp { shared: Arc::clone(&shared), stamps },
            lanes: Arc::clone(&lanes),
            suspects: Suspects::new(Arc::clone(&shared), tasks.clone()),
            keys: Arc::clone(&parts.keys),
            sender: Sender {
                egress: parts.egress.clone(),
                destinations: parts.destinations.clone(),
                shared: Arc::clone(&shared),
            },
            attempts: attempts_sender,
            moves: moves_sender,
            settler,
            shared: Arc::clone(&shared),
        };
        let abandon = shared.abandon.clone();
        let intake = Intake { shared, lanes, line: Arc::new(line), tasks: tasks.clone(), most: parts.batch };
        Self { intake, recorder, attempts, mover, moves, tasks, abandon }
    }
}
