//! The line: what jobs pass through from their messages to the acknowledgements, put together.

mod attempt;
mod bundle;
mod context;
mod echoes;
mod hold;
mod in_flight;
pub(crate) mod intake;
mod look_up;
mod outcome;
mod record;
mod settle;
mod span;
mod steps;
mod suspects;

use std::sync::Arc;

use domain::WebhookUrl;
use egress::Egress;
use governor::{Quota, RateLimiter};
use ledger::{Ledger, SecretKeys};
use service_kit::{Running, Settings};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    attempt::Sender,
    context::{LineContext, PARKED_PER_MINUTE},
    in_flight::InFlight,
    intake::Intake,
    record::Recorder,
    settle::Settler,
    span::Spans,
    steps::{LACK_LOGS_PER_MINUTE, Line},
    suspects::Suspects,
};
use crate::{
    brake::{Brake, Braked, Pages},
    lane::admission::Lanes,
    metrics::Metrics,
};

/// Puts together the way of all jobs, and starts recorder and holder. These run until nobody can send them a job.
pub(crate) fn start(
    Running { ledger, database, broker, publisher, traces, essential, .. }: &Running,
    settings: &Settings,
    egress: Egress,
    keys: SecretKeys,
    (braked, orders, canary): (Braked, Ledger, Option<WebhookUrl>),
    metrics: &Metrics,
) -> (Intake, [JoinHandle<()>; 2]) {
    let Settings { dispatcher, retry, retention, .. } = settings;
    let jobs = usize::from(dispatcher.max_in_flight) + usize::from(dispatcher.slow_in_flight);
    let ((attempts_sender, attempts), (holds_sender, holds)) = (mpsc::channel(jobs), mpsc::channel(jobs));
    let tasks = TaskTracker::new();
    let context = Arc::new(LineContext {
        ledger: ledger.clone(),
        database: database.clone(),
        names: broker.names().clone(),
        schedule: retry.schedule.clone(),
        in_flight: InFlight::new(metrics.in_flight.clone()),
        metrics: metrics.clone(),
        parks: Mutex::new(RateLimiter::direct(Quota::per_minute(PARKED_PER_MINUTE))),
        keep: retention.keep,
        abandon: CancellationToken::new(),
        essential: essential.clone(),
    });
    metrics.show_slots(dispatcher.max_in_flight, dispatcher.slow_in_flight);
    let settler = Arc::new(Settler { publisher: publisher.clone(), context: Arc::clone(&context) });
    let most = dispatcher.batch.into();
    let recorder = Recorder { settler: Arc::clone(&settler) };
    let recording = essential.spawn("recorder", recorder.run(attempts, most));
    let holding = essential.spawn("holder", hold::run(Arc::clone(&settler), holds));
    let pages = Pages {
        ledger: ledger.clone(),
        egress: egress.clone(),
        canary,
        address_policy: settings.egress.address_policy(),
        shown: metrics.brakes.clone(),
    };
    let brake = Brake::new(braked, orders, database.clone(), pages);
    let line = Line {
        brake,
        lanes: Arc::new(Lanes::new(dispatcher)),
        suspects: Suspects::new(Arc::clone(&context), tasks.clone()),
        keys,
        sender: Sender {
            egress,
            address_policy: settings.egress.address_policy(),
            standard_webhooks: settings.signing.standard_webhooks,
            spans: Spans { traces: traces.clone(), address_policy: settings.egress.address_policy() },
            context: Arc::clone(&context),
        },
        to_recorder: attempts_sender,
        to_holder: holds_sender,
        settler,
        lacks: RateLimiter::direct(Quota::per_minute(LACK_LOGS_PER_MINUTE)),
        context,
    };
    (Intake { line: Arc::new(line), tasks, most }, [recording, holding])
}
