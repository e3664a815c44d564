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
        let (abandon, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (ledger, names, schedule) = (&parts.ledger, broker.names(), &parts.schedule);
        let in_flight = Arc::new(InFlight::new(metrics.in_flight.clone()));
        let lanes = Arc::new(Lanes::new(parts.main, parts.slow));
        let stamps = Arc::new(Stamps::new(ledger.clone(), abandon.clone()));
        let settler = Arc::new(Settler {
            ledger: ledger.clone(),
            publisher: publisher.clone(),
            names: names.clone(),
            schedule: schedule.clone(),
            in_flight: Arc::clone(&in_flight),
            metrics: metrics.clone(),
            keep: parts.keep,
            abandon: abandon.clone(),
        });
        let recorder = Recorder {
            ledger: ledger.clone(),
            schedule: schedule.clone(),
            in_flight: Arc::clone(&in_flight),
            settler: Arc::clone(&settler),
            metrics: metrics.clone(),
            abandon: abandon.clone(),
            broken: broken.clone(),
        };
        let line = Line {
            ledger: ledger.clone(),
            schedule: schedule.clone(),
            look_up: LookUp::new(ledger.clone(), Arc::clone(&stamps), metrics.clone(), abandon.clone()),
            lanes: Arc::clone(&lanes),
            suspects: Suspects::new(ledger.clone(), Arc::clone(&in_flight), tasks.clone(), abandon.clone()),
            keys: Arc::clone(&parts.keys),
            sender: Sender::new(&parts.egress, &parts.destinations, schedule, metrics),
            attempts: attempts_sender,
            moves: moves_sender,
            settler: Arc::clone(&settler),
            metrics: metrics.clone(),
            abandon: abandon.clone(),
        };
        let mover = Mover { stamps, settler: Arc::clone(&settler), broken: broken.clone() };
        let intake = Intake {
            names: names.clone(),
            lanes,
            in_flight,
            line: Arc::new(line),
            settler,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
            most: parts.batch,
        };
        Self { intake, recorder, attempts, mover, moves, tasks, abandon }
    }
}
