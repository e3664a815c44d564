//! The brake: while no receiver can be reached, while this machine's clock is wrong, or while an operator says so, this
//! process accepts no jobs. They stay on their queues, so that a fault of ours uses up little of their schedules.

mod failures;
mod metrics;
mod pages;

use std::{sync::Arc, time::Duration};

use domain::{OutcomeClass, TenantId, WebhookId, error_chain};
use ledger::{Attempted, Ledger, LedgerError};
use parking_lot::Mutex;
use service_kit::DatabaseWatch;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use self::{metrics::Brakes, pages::Pages};

use crate::{
    brake::{
        failures::Failures,
        metrics::Reason,
        pages::{PageResult, Round, host},
    },
    fault::hastened,
    lane::quota::Owner,
};

/// The interval at which orders are read, clocks and failures looked at, and an own brake is renewed in the ledger.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a page of receivers.
const PAGE_PAUSE: Duration = Duration::from_secs(10);
/// The pause after failures of too few receivers that were well.
const TOO_FEW_PAUSE: Duration = Duration::from_secs(5);
/// A receiver that began to fail so long before the last answer was not failing before the outage: kept connections may answer
/// for a while.
const OUTAGE_ONSET: Duration = Duration::from_secs(15 * 60);
/// A dispatcher that died braked is remembered for this time, by those that start.
const MAX_DEAD_BRAKE_AGE: time::Duration = time::Duration::hours(1);

/// The brake's state. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Braked(watch::Sender<State>);

#[derive(Clone, Copy, Default)]
struct State {
    /// By the places of [`Reason`].
    reasons: [bool; 3],
    /// True once it is known that jobs may be accepted.
    is_known: bool,
}

impl State {
    fn is_on(&self) -> bool {
        self.reasons.contains(&true)
    }
}

impl Braked {
    /// Returns whether the process accepts no jobs.
    pub(crate) fn is_on(&self) -> bool {
        self.0.borrow().is_on()
    }

    /// Waits until the brake is known to be off. What this returns waits until the brake is set, and misses nothing: the
    /// brake may have been set and released before somebody waits.
    pub(crate) async fn off(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.0.subscribe();
        let _ = state.wait_for(|state| state.is_known && !state.is_on()).await;
        async move { drop(state.changed().await) }
    }
}

/// Sets the brake and releases it.
pub(crate) struct Brake {
    state: Braked,
    /// With a connection of its own: an order counts also while jobs wait for connections.
    orders: Ledger,
    database: DatabaseWatch,
    pages: Pages,
    failures: Mutex<Failures>,
    /// Its name in the ledger.
    holder: String,
    /// True if another dispatcher reaches nobody, or at the first look, if one died so lately. `None` before that look.
    others: watch::Sender<Option<bool>>,
}

impl Brake {
    pub(crate) fn new(state: Braked, orders: Ledger, database: DatabaseWatch, pages: Pages) -> Arc<Self> {
        Arc::new(Self {
            state,
            orders,
            database,
            pages,
            failures: Mutex::new(Failures::new(Instant::now())),
            holder: Uuid::new_v4().to_string(),
            others: watch::Sender::default(),
        })
    }

    /// Returns whether no attempt is to be made now. A clock that has just been set is seen here.
    pub(crate) fn is_on(&self) -> bool {
        if self.database.is_off() {
            self.set(Reason::Clock, true);
        }
        self.state.is_on()
    }

    /// Notes an attempt's outcome.
    pub(crate) fn note_attempt(&self, made: &Attempted, tenant: TenantId) {
        match made.answer.class {
            OutcomeClass::Success | OutcomeClass::Status if !self.pages.egress.is_internal(&made.url) => {
                self.failures.lock().note_answer(Instant::now());
            }
            // A connection that breaks proves nothing.
            OutcomeClass::Success | OutcomeClass::Status | OutcomeClass::RefusedAddress | OutcomeClass::Protocol => {}
            _ => self.note_failure(Owner { webhook: made.webhook, tenant }, &made.url),
        }
    }

    /// Notes that an attempt had no answer, or that a job is held as its webhook does not answer.
    pub(crate) fn note_failure(&self, Owner { webhook, tenant }: Owner, url: &str) {
        if !self.pages.egress.is_internal(url) {
            self.failures.lock().note_failure(webhook, tenant, host(url), Instant::now());
        }
    }

    /// Sets and releases the brake until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let working = async { tokio::join!(self.watch_receivers(), self.watch_orders()) };
        stop.run_until_cancelled(working).await;
        // The next process begins braked if no receiver could be reached, and finds out by itself about the rest.
        let reaches_nobody = self.state.0.borrow().reasons[Reason::NoAnswer as usize];
        let noted = async {
            match reaches_nobody {
                true => self.orders.brake_renew(&self.holder, Reason::NoAnswer.into()).await,
                false => self.orders.brake_release(Some(&self.holder)).await.map(drop),
            }
        };
        let _ = timeout(POLL_INTERVAL, noted).await;
    }

    /// Those of the webhooks whose receivers were well before the last answer to an attempt.
    async fn well(&self, webhooks: &[WebhookId]) -> Result<Vec<WebhookId>, LedgerError> {
        let failing_from = self.database.now() - self.failures.lock().last_answer().elapsed() - OUTAGE_ONSET;
        self.pages.ledger.receivers_well(webhooks, failing_from).await
    }

    /// Sets the brake when neither attempts nor a page of receivers are answered, until a page is.
    async fn watch_receivers(&self) {
        let _ = self.others.subscribe().wait_for(Option::is_some).await;
        // Others have braked: this process need not find out anew, at the cost of its jobs.
        let (mut may_be_ours, mut round) = (self.others_are_braked(), Round::default());
        loop {
            let mut pause = POLL_INTERVAL;
            if may_be_ours {
                self.ask(&mut round).await;
                pause = hastened(PAGE_PAUSE);
            }
            self.state.0.send_if_modified(|state| !std::mem::replace(&mut state.is_known, true));
            sleep(pause).await;
            may_be_ours = self.may_be_ours().await;
        }
    }

    /// Asks a page of receivers. If none can be reached, brakes until one can be, or until there is nobody to ask.
    async fn ask(&self, round: &mut Round) {
        let asked_at = Instant::now();
        match self.pages.ask(round).await {
            PageResult::Reached => {}
            // An attempt may have been answered meanwhile.
            PageResult::Unreached if self.failures.lock().last_answer() < asked_at => {
                self.set(Reason::NoAnswer, true);
                loop {
                    sleep(hastened(PAGE_PAUSE)).await;
                    if matches!(self.pages.ask(round).await, PageResult::Reached | PageResult::NobodyAtAll) {
                        break;
                    }
                }
                self.set(Reason::NoAnswer, false);
            }
            PageResult::Unreached | PageResult::Nobody | PageResult::NobodyAtAll => return,
        }
        self.failures.lock().reset(Instant::now());
    }

    fn others_are_braked(&self) -> bool {
        self.others.borrow().unwrap_or(false)
    }

    /// Returns whether so many receivers that were well fail that none may be reachable. With a canary, or while another
    /// dispatcher reaches nobody, one failure in a minute without an answer is enough.
    async fn may_be_ours(&self) -> bool {
        let failed = {
            let (failures, now) = (self.failures.lock(), Instant::now());
            if failures.are_without_answer(now) && (self.pages.canary.is_some() || self.others_are_braked()) {
                return true;
            }
            let failed = failures.webhooks();
            if !failures.are_enough(&failed, now) {
                return false;
            }
            failed
        };
        let are_enough = match self.well(&failed).await {
            Ok(well) => self.failures.lock().are_enough(&well, Instant::now()),
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "no look at the receivers that fail");
                false
            }
        };
        if !are_enough {
            sleep(hastened(TOO_FEW_PAUSE)).await;
        }
        are_enough
    }

    /// Reads the brakes of others, compares the clocks, and renews an own brake in the ledger.
    async fn watch_orders(&self) {
        let holder = self.holder.as_str();
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_in_ledger, mut was_logged) = (false, false);
        loop {
            ticks.tick().await;
            self.set(Reason::Clock, self.database.is_off());
            // A process that starts looks at those that died braked as well.
            let is_start = self.others.borrow().is_none();
            let read =
                if is_start { self.orders.brakes_within(MAX_DEAD_BRAKE_AGE).await } else { self.orders.brakes().await };
            match read {
                Ok(brakes) => {
                    self.set(Reason::Operator, brakes.iter().any(ledger::Brake::is_operators));
                    let is_others = |brake: &ledger::Brake| {
                        brake.holder != holder && brake.reason == <&str>::from(Reason::NoAnswer)
                    };
                    self.others.send_replace(Some(brakes.iter().any(is_others)));
                }
                Err(error) if is_start && !std::mem::replace(&mut was_logged, true) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "the brakes cannot be read: no jobs are accepted before they are");
                }
                // The last order counts.
                Err(_) => {}
            }
            let reasons = self.state.0.borrow().reasons;
            let done = match Reason::FOUND_BY_PROCESS.into_iter().find(|reason| reasons[*reason as usize]) {
                Some(reason) => self.orders.brake_renew(holder, reason.into()).await.map(|()| true),
                None if is_in_ledger => self.orders.brake_release(Some(holder)).await.map(|_| false),
                None => continue,
            };
            match done {
                Ok(is_there) => is_in_ledger = is_there,
                Err(error) => {
                    tracing::debug!(error = error_chain(&error), "the brake is not in the ledger");
                }
            }
        }
    }

    fn set(&self, reason: Reason, is_on: bool) {
        let place = reason as usize;
        let changed = self.state.0.send_if_modified(|state| {
            let changed = state.reasons[place] != is_on;
            state.reasons[place] = is_on;
            // In the order of the changes.
            if changed {
                self.pages.shown.set(reason, is_on);
            }
            changed
        });
        if !changed {
            return;
        }
        match (reason, is_on) {
            (Reason::NoAnswer, true) => tracing::error!(
                "the brake is on: no receiver can be reached (name servers, routes, authorities). No jobs are accepted until one \
                 can be"
            ),
            (Reason::Clock, true) => tracing::error!(
                "the brake is on: this machine's clock is more than four minutes from the database's. No jobs are accepted \
                 until it is right: receivers would refuse every signature"
            ),
            (Reason::Operator, true) => tracing::warn!("the brake is on: an operator has set it (webhookctl brake)"),
            (_, false) => tracing::info!(reason = <&str>::from(reason), "the brake is released"),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use strum::IntoEnumIterator;

    use super::*;

    #[tokio::test]
    async fn who_looks_late_sees_that_the_brake_was_on() {
        let braked = Braked::default();
        braked.0.send_modify(|state| state.is_known = true);
        let set_again = braked.off().await;
        braked.0.send_modify(|state| state.reasons[0] = true);
        assert!(braked.is_on());
        braked.0.send_modify(|state| state.reasons[0] = false);
        set_again.await;
        assert!(braked.off().await.now_or_never().is_none());
    }

    #[test]
    fn each_reason_has_its_place() {
        assert_eq!(Reason::iter().map(|reason| reason as usize).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(State::default().reasons.len(), Reason::iter().count());
    }
}
