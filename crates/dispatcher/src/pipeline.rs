//! What jobs pass through, put together.

use std::sync::Arc;

use domain::WebhookUrl;
use egress::Egress;
use ledger::SecretKeys;
use service_kit::{Running, Settings};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    attempt::Sender,
    brake::{Brake, Parts, Switch},
    holder::{Holder, Holding},
    in_flight::InFlight,
    intake::Intake,
    lane::{Lanes, Slots},
    line::Line,
    look_up::LookUp,
    metrics::Metrics,
    record::{Made, Recorder},
    settle::Settler,
    shared::{Shared, parks},
    spans::Spans,
    suspects::Suspects,
};

/// The steps that run by themselves, with the channels in between.
pub(crate) struct Pipeline {
    pub(crate) intake: Intake,
    pub(crate) recorder: Recorder,
    pub(crate) attempts: mpsc::Receiver<Made>,
    pub(crate) holder: Holder,
    pub(crate) holds: mpsc::Receiver<Holding>,
    /// The jobs under way.
    pub(crate) tasks: TaskTracker,
    pub(crate) shared: Arc<Shared>,
}

impl Pipeline {
    pub(crate) fn new(
        Running { ledger, database, broker, publisher, traces, essential, .. }: &Running,
        settings: &Settings,
        egress: Egress,
        keys: SecretKeys,
        slots: Slots,
        (switch, canary): (Switch, Option<WebhookUrl>),
        metrics: &Metrics,
    ) -> Self {
        let Settings { dispatcher, retry, retention, .. } = settings;
        let jobs = usize::from(dispatcher.max_in_flight) + usize::from(dispatcher.slow_in_flight);
        let ((attempts_sender, attempts), (holds_sender, holds)) = (mpsc::channel(jobs), mpsc::channel(jobs));
        let tasks = TaskTracker::new();
        let shared = Arc::new(Shared {
            ledger: ledger.clone(),
            database: database.clone(),
            names: broker.names().clone(),
            schedule: retry.schedule.clone(),
            in_flight: InFlight::new(metrics.in_flight.clone()),
            metrics: metrics.clone(),
            parks: parks(),
            keep: retention.keep,
            abandon: CancellationToken::new(),
            essential: essential.clone(),
        });
        metrics.show_slots(dispatcher.max_in_flight, dispatcher.slow_in_flight);
        let lanes = Arc::new(Lanes::new(slots));
        let settler = Arc::new(Settler { publisher: publisher.clone(), shared: Arc::clone(&shared) });
        let recorder = Recorder { shared: Arc::clone(&shared), settler: Arc::clone(&settler) };
        let holder = Holder { shared: Arc::clone(&shared), settler: Arc::clone(&settler) };
        let brake = Brake::new(Parts {
            ledger: ledger.clone(),
            egress: egress.clone(),
            canary,
            destinations: settings.egress.destinations(),
            database: database.clone(),
            switch,
            shown: metrics.brakes.clone(),
        });
        let line = Line {
            brake,
            look_up: LookUp { shared: Arc::clone(&shared) },
            lanes: Arc::clone(&lanes),
            suspects: Suspects::new(Arc::clone(&shared), tasks.clone()),
            keys,
            sender: Sender {
                egress,
                destinations: settings.egress.destinations(),
                standard_webhooks: settings.signing.standard_webhooks,
                spans: Spans { traces: traces.clone(), destinations: settings.egress.destinations() },
                shared: Arc::clone(&shared),
            },
            to_recorder: attempts_sender,
            to_holder: holds_sender,
            settler,
            shared: Arc::clone(&shared),
        };
        let intake = Intake {
            shared: Arc::clone(&shared),
            lanes,
            line: Arc::new(line),
            tasks: tasks.clone(),
            most: dispatcher.batch.into(),
        };
        Self { intake, recorder, attempts, holder, holds, tasks, shared }
    }
}
