//! The brake: while no receiver can be reached, while this machine's clock is wrong, or while an operator says so, this
//! process accepts no jobs. They stay on their queues, and nobody's schedule is used up for a fault of ours.

mod failures;
mod witnesses;

use std::{collections::HashMap, net::Ipv4Addr, sync::Arc, time::Duration};

use domain::{Destinations, TenantId, WebhookId, WebhookUrl};
use egress::{Egress, OwnFault};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use ledger::{Ledger, LedgerError, Well};
use moka::sync::Cache;
use parking_lot::Mutex;
use service_kit::DatabaseWatch;
use time::OffsetDateTime;
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    brake::{failures::Failures, witnesses::Witnesses},
    metrics::Brakes,
    reason::Reason,
};

/// Receivers tolerate a timestamp that is five minutes off (specification 5.2).
const CLOCKS: time::Duration = time::Duration::minutes(4);
/// The interval at which orders are read and clocks compared.
const TICK: Duration = Duration::from_secs(2);
/// The interval at which a dispatcher that is braked says so in the ledger.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// The pause between two probes, at first and at most, and after failures that proved harmless.
const PROBED_EVERY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
const AFTER_HARMLESS: Duration = Duration::from_secs(30);
/// The tenants of one probe, a few receivers of each, and how many probes fail before the brake is set.
const PROBED: u16 = 50;
const PROBES: u32 = 5;
/// A receiver that began to fail so long before the last answer was not failing before the outage: kept connections may answer
/// for a while.
const GRADUAL: time::Duration = time::Duration::minutes(15);
/// The time for which no jobs are accepted, at least, once no descriptor is left: at first, and when that happens again soon.
const WITHOUT_SOCKETS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));
/// A dispatcher that died braked is remembered for this time.
const LATELY: time::Duration = time::Duration::hours(1);
/// The clocks agree again once they differ by less than the limit, by this much.
const CLEARLY: time::Duration = time::Duration::seconds(10);
/// The maximum of times in a row that a delivery's attempt is not charged.
const UNCHARGED: u32 = 3;

/// The brake's state. Clones share it.
#[derive(Clone)]
pub(crate) struct Braked(watch::Receiver<State>);

/// Sets the brake and releases it.
pub(crate) struct Switch(watch::Sender<State>);

/// The brake's state and its switch, for who asks before there is a [`Brake`].
pub(crate) fn switch() -> (Switch, Braked) {
    let (sender, state) = watch::channel(State::default());
    (Switch(sender), Braked(state))
}

#[derive(Clone, Copy, Default)]
struct State {
    /// By the places of [`Reason`].
    reasons: [bool; 4],
    /// The number of times that the brake was set.
    times: u64,
    /// True once the operator's orders are known.
    is_known: bool,
    /// When the brake was last released.
    released_at: Option<OffsetDateTime>,
}

impl State {
    fn is_on(self) -> bool {
        self.reasons.contains(&true)
    }
}

impl Braked {
    /// Returns whether the process accepts no jobs.
    pub(crate) fn is_on(&self) -> bool {
        self.0.borrow().is_on()
    }

    /// Waits until the brake is on, or was since it had been set this many times. So whoever looks late misses nothing.
    pub(crate) async fn again(&self, times: u64) {
        self.wait_for(|state| state.is_on() || state.times != times).await;
    }

    /// Waits until the brake is known to be off. Returns how often it was set.
    pub(crate) async fn off(&self) -> u64 {
        self.wait_for(|state| state.is_known && !state.is_on()).await.times
    }

    async fn wait_for(&self, is_so: impl FnMut(&State) -> bool) -> State {
        let mut state = self.0.clone();
        let found = state.wait_for(is_so).await.ok().map(|state| *state);
        match found {
            Some(state) => state,
            // At the end of the process nothing sets it any more.
            None => std::future::pending().await,
        }
    }
}

/// Sets the brake.
pub(crate) struct Brake {
    ledger: Ledger,
    egress: Egress,
    destinations: Destinations,
    canary: Option<WebhookUrl>,
    database: DatabaseWatch,
    state: watch::Sender<State>,
    shown: Brakes,
    failures: Mutex<Failures>,
    witnesses: Witnesses,
    /// True for receivers that were well lately, as the ledger said some seconds ago.
    well: Cache<WebhookId, bool>,
    /// True while other dispatchers reach nobody. `None` before the first look.
    others: watch::Sender<Option<bool>>,
    /// Its name in the ledger.
    holder: String,
    started: Instant,
}

/// The parts of a brake that others make.
pub(crate) struct Parts {
    pub(crate) ledger: Ledger,
    pub(crate) egress: Egress,
    pub(crate) destinations: Destinations,
    pub(crate) canary: Option<WebhookUrl>,
    pub(crate) database: DatabaseWatch,
    pub(crate) switch: Switch,
    pub(crate) shown: Brakes,
}

impl Brake {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { ledger, egress, destinations, canary, database, switch: Switch(state), shown } = parts;
        let well = Cache::builder().max_capacity(10_000).time_to_live(Duration::from_secs(30)).build();
        Arc::new(Self {
            ledger,
            egress,
            destinations,
            canary,
            database,
            state,
            shown,
            failures: Mutex::default(),
            witnesses: Witnesses::default(),
            well,
            others: watch::Sender::default(),
            holder: Uuid::new_v4().to_string(),
            started: Instant::now(),
        })
    }

    /// Returns whether no attempt is to be made now. A clock that has just been set is seen here.
    pub(crate) fn is_on(&self) -> bool {
        if self.clock_is_off() {
            self.set(Reason::Clock, true);
        }
        self.state.borrow().is_on()
    }

    /// Returns whether a job that was due then waited for the brake.
    pub(crate) fn delayed(&self, due: OffsetDateTime) -> bool {
        self.state.borrow().released_at.is_some_and(|released_at| due < released_at)
    }

    fn clock_is_off(&self) -> bool {
        let is_on = self.state.borrow().reasons[Reason::Clock as usize];
        let most = if is_on { CLOCKS - CLEARLY } else { CLOCKS };
        self.database.offset().is_some_and(|offset| offset.abs() > most)
    }

    /// A receiver answered an attempt.
    pub(crate) fn answered(&self) {
        self.failures.lock().answered(Instant::now());
    }

    /// An attempt failed without an answer.
    pub(crate) fn failed(&self, webhook: WebhookId, tenant: TenantId, url: &str) {
        self.failures.lock().failed(webhook, tenant, host(url), Instant::now());
    }

    /// Returns the fault if an attempt that failed so may be uncharged. `before`: how often the job was delivered before,
    /// which counts its uncharged attempts.
    ///
    /// # Errors
    /// When the ledger does not say whether the receiver was well.
    pub(crate) async fn may_be_uncharged(
        &self,
        fault: OwnFault,
        webhook: WebhookId,
        before: u32,
    ) -> Result<Option<OwnFault>, LedgerError> {
        // A look-up takes a descriptor, too, and does not say that it had none.
        let takes_socket = matches!(fault, OwnFault::NoPort | OwnFault::NoNameServer);
        let fault = if takes_socket && !has_sockets().await { OwnFault::NoSocket } else { fault };
        if fault == OwnFault::NoSocket {
            self.set(Reason::NoSocket, true);
        }
        let may_be = before < UNCHARGED && (fault == OwnFault::NoSocket || self.was_well(webhook).await?);
        Ok(may_be.then_some(fault))
    }

    /// Returns whether such a failure is most likely ours: it meets several tenants.
    pub(crate) async fn is_ours(&self, fault: OwnFault, tenant: TenantId) -> bool {
        fault == OwnFault::NoSocket || self.witnesses.are_several(fault, tenant).await
    }

    /// Returns whether a receiver succeeded within the hour and was not failing.
    async fn was_well(&self, webhook: WebhookId) -> Result<bool, LedgerError> {
        if let Some(was_well) = self.well.get(&webhook) {
            return Ok(was_well);
        }
        let well = Well { within: time::Duration::hours(1), failing_from: None };
        let was_well = !self.ledger.receivers_well(&[webhook], well).await?.is_empty();
        self.well.insert(webhook, was_well);
        Ok(was_well)
    }

    /// Sets and releases the brake until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let working = async { tokio::join!(self.watch_receivers(), self.watch_orders(), self.watch_sockets()) };
        stop.run_until_cancelled(working).await;
        // Nobody renews it any more.
        let _ = timeout(TICK, self.ledger.brake_release(Some(&self.holder))).await;
    }

    async fn watch_receivers(&self) {
        let mut next = Next::default();
        self.others.subscribe().wait_for(Option::is_some).await.ok();
        // Others have braked: this process need not find out anew, at the cost of its jobs.
        let mut is_ours = self.others_are_braked() && !self.gets_through(&mut next).await;
        if is_ours {
            self.set(Reason::NoAnswer, true);
        }
        self.state.send_if_modified(|state| !std::mem::replace(&mut state.is_known, true));
        loop {
            if is_ours {
                self.brake_until_one_answers(&mut next).await;
            }
            sleep(TICK).await;
            is_ours =
                self.may_be_ours().await && self.nothing_gets_through(&mut next).await && self.may_be_ours().await;
        }
    }

    /// Sets the brake until a probe gets through, or the answer of an attempt comes that had begun before.
    async fn brake_until_one_answers(&self, next: &mut Next) {
        let (began, mut pause) = (Instant::now(), PROBED_EVERY.0);
        self.set(Reason::NoAnswer, true);
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(PROBED_EVERY.1);
            let has_answered = self.failures.lock().last_answer().is_some_and(|at| at > began);
            if has_answered || self.gets_through(next).await {
                break;
            }
        }
        self.failures.lock().clear();
        self.set(Reason::NoAnswer, false);
    }

    /// Returns whether the failures of receivers that were well are such that none may be reachable.
    async fn may_be_ours(&self) -> bool {
        let (failed, last_answer) = {
            let mut failures = self.failures.lock();
            let has_no_answer = failures.last_answer().is_none_or(|at| at.elapsed() >= failures::AT_LEAST);
            if has_no_answer && self.others_are_braked() && failures.are_there() {
                return true;
            }
            let Some(failed) = failures.suspicious(Instant::now()) else { return false };
            (failed, failures.last_answer())
        };
        let failing_from = self.database.now() - last_answer.unwrap_or(self.started).elapsed() - GRADUAL;
        let well = Well { within: time::Duration::days(1), failing_from: Some(failing_from) };
        let are_enough = match self.ledger.receivers_well(&failed, well).await {
            Ok(well) => self.failures.lock().are_enough(&well, Instant::now()),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no look at the receivers that fail");
                false
            }
        };
        if !are_enough {
            sleep(PROBED_EVERY.0).await;
        }
        are_enough
    }

    /// Returns whether several probes, each of other tenants as long as there are others, reach nobody.
    async fn nothing_gets_through(&self, next: &mut Next) -> bool {
        let mut rounds = u32::from(next.is_none());
        for _ in 0..PROBES {
            if self.gets_through(next).await {
                sleep(AFTER_HARMLESS).await;
                return false;
            }
            if next.is_none() && std::mem::replace(&mut rounds, 1) > 0 {
                break;
            }
        }
        true
    }

    /// Returns whether any receiver of the next tenants can be reached, or the canary answers. Makes no attempt. Where
    /// nobody can be asked, nothing is wrong.
    async fn gets_through(&self, next: &mut Next) -> bool {
        let reached = match self.candidates(next).await {
            Ok(urls) => self.reaches_any(&urls).await,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no receivers to probe");
                // Nothing can be attempted either.
                !self.state.borrow().is_on()
            }
        };
        self.shown.probed(reached);
        reached
    }

    /// The receivers of the next tenants. After the last tenant comes the first.
    async fn candidates(&self, next: &mut Next) -> Result<Vec<String>, LedgerError> {
        let (mut urls, mut last) = self.ledger.receivers_to_probe(*next, PROBED).await?;
        if urls.is_empty() && next.is_some() {
            (urls, last) = self.ledger.receivers_to_probe(None, PROBED).await?;
        }
        *next = last;
        Ok(urls)
    }

    async fn reaches_any(&self, urls: &[String]) -> bool {
        let of_hosts: HashMap<&str, &String> = urls.iter().map(|url| (host(url), url)).collect();
        let parsed = of_hosts.values().filter_map(|url| WebhookUrl::parse(url, usize::MAX, &self.destinations).ok());
        let receivers: Vec<WebhookUrl> = parsed.collect();
        let canary = self.canary.iter().map(|canary| self.egress.answers(canary).boxed());
        let mut probes: FuturesUnordered<_> =
            receivers.iter().map(|url| self.egress.reaches(url).boxed()).chain(canary).collect();
        if probes.is_empty() {
            return true;
        }
        while let Some(reached) = probes.next().await {
            if reached {
                return true;
            }
        }
        false
    }

    fn others_are_braked(&self) -> bool {
        self.others.borrow().unwrap_or(false)
    }

    async fn watch_orders(&self) {
        let holder = self.holder.as_str();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut renewed_at, mut was_told): (Option<Instant>, bool) = (None, false);
        loop {
            ticks.tick().await;
            self.set(Reason::Clock, self.clock_is_off());
            // A process that starts looks at those that died braked as well.
            let is_start = self.others.borrow().is_none();
            let read = if is_start { self.ledger.brakes_within(LATELY).await } else { self.ledger.brakes().await };
            match read {
                Ok(brakes) => {
                    self.set(Reason::Operator, brakes.iter().any(ledger::Brake::is_operators));
                    let is_others = |brake: &ledger::Brake| {
                        brake.holder != holder && brake.reason == <&str>::from(Reason::NoAnswer)
                    };
                    self.others.send_replace(Some(brakes.iter().any(is_others)));
                }
                Err(error) if is_start && !std::mem::replace(&mut was_told, true) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the brakes cannot be read: no jobs are accepted before they are");
                }
                // The last order counts.
                Err(_) => {}
            }
            let reasons = self.state.borrow().reasons;
            let own = Reason::OWN.into_iter().find(|reason| reasons[*reason as usize]);
            let done = match (own, renewed_at) {
                (Some(reason), before) if before.is_none_or(|at| at.elapsed() >= RENEWED_EVERY) => {
                    self.ledger.brake_renew(holder, reason.into()).await.map(|()| Some(Instant::now()))
                }
                (None, Some(_)) => self.ledger.brake_release(Some(holder)).await.map(|_| None),
                _ => continue,
            };
            match done {
                Ok(at) => renewed_at = at,
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the brake is not in the ledger");
                }
            }
        }
    }

    async fn watch_sockets(&self) {
        let (mut state, mut pause, mut released_at) = (self.state.subscribe(), WITHOUT_SOCKETS.0, Instant::now());
        loop {
            let _ = state.wait_for(|state| state.reasons[Reason::NoSocket as usize]).await;
            // To take jobs and return them again and again would count as deliveries of each.
            pause = if released_at.elapsed() < pause { (pause * 2).min(WITHOUT_SOCKETS.1) } else { WITHOUT_SOCKETS.0 };
            sleep(pause).await;
            while !has_sockets().await {
                sleep(TICK).await;
            }
            self.set(Reason::NoSocket, false);
            released_at = Instant::now();
        }
    }

    fn set(&self, reason: Reason, is_on: bool) {
        let place = reason as usize;
        let changed = self.state.send_if_modified(|state| {
            let (was_on, changed) = (state.is_on(), state.reasons[place] != is_on);
            state.reasons[place] = is_on;
            match (was_on, state.is_on()) {
                (false, true) => state.times += 1,
                (true, false) => state.released_at = Some(self.database.now()),
                _ => {}
            }
            // In the order of the changes.
            if changed {
                self.shown.set(reason, is_on);
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
            (Reason::NoSocket, true) => tracing::error!(
                "the brake is on: no descriptor is left, or no local port. No jobs are accepted until one is"
            ),
            (Reason::Operator, true) => tracing::warn!("the brake is on: an operator has set it (webhookctl brake)"),
            (_, false) => tracing::info!(reason = <&str>::from(reason), "the brake is released"),
        }
    }
}

/// The tenant after which the next probe begins. `None`: it begins with the first one.
type Next = Option<TenantId>;

/// Returns whether a descriptor and a local port can be had.
async fn has_sockets() -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.is_ok()
}

/// The host and port of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn a_host_has_its_port_and_nothing_behind_it() {
        for url in [
            "https://a.example:8443/x",
            "https://a.example:8443?x",
            "https://a.example:8443#x",
            "https://a.example:8443",
        ] {
            assert_eq!(host(url), "a.example:8443");
        }
    }

    #[tokio::test]
    async fn who_looks_late_sees_that_the_brake_was_on() {
        let (Switch(sender), braked) = switch();
        sender.send_modify(|state| state.is_known = true);
        let times = braked.off().await;
        sender.send_modify(|state| (state.reasons[0], state.times) = (true, state.times + 1));
        assert!(braked.is_on());
        sender.send_modify(|state| state.reasons[0] = false);
        assert!(!braked.is_on());
        braked.again(times).await;
        assert_ne!(braked.off().await, times);
    }

    #[test]
    fn each_reason_has_its_place() {
        assert_eq!(Reason::iter().map(|reason| reason as usize).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(State::default().reasons.len(), Reason::iter().count());
    }
}
