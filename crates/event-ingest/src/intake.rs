//! One batch of events: read, store, publish, acknowledge.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{Acker, Names, Outgoing, Publisher, Received};
use domain::{AcceptedPeriod, DeliveryId, Job, Redelivered, Rejection, Traceparent};
use futures_util::FutureExt;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use ledger::{Ledger, LedgerError, NewEvent, Stored};
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use service_kit::{
    DatabaseWatch, EssentialTasks,
    publishing::{Publication, Publishing},
    until_done,
};
use time::OffsetDateTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use traces::Span as EventSpan;
use tracing::{Instrument, Span};

use crate::{
    fault,
    flood::Flood,
    high_load::HighLoad,
    metrics::Metrics,
    plan::{Judged, Plan, Usable, rejected},
    spans::{self, Spans},
    turns::Turn,
    waiting_events::{EventJob, Publications, WaitingEvents, content},
};

/// Events in one query for untried deliveries. Such a query looks at every webhook that their tenants ever had.
const EVENTS_OF_A_QUERY: usize = 16;

#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) ledger: Ledger,
    pub(crate) database: DatabaseWatch,
    pub(crate) publisher: Publisher,
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
    pub(crate) spans: Spans,
    pub(crate) data_limit: usize,
    /// How long events are kept.
    pub(crate) keep: Duration,
    pub(crate) high_load: HighLoad,
    pub(crate) flood: Flood,
    /// The turn of a part of a batch that could not be stored at once: one is tried at a time.
    pub(crate) part_turn: Arc<Semaphore>,
    /// Counts the events that are parked because of a panic. One of them waits for that at a time.
    pub(crate) parks: Arc<tokio::sync::Mutex<DefaultDirectRateLimiter>>,
    /// Cancelled when the shutdown begins.
    pub(crate) shutdown: CancellationToken,
    pub(crate) essential: EssentialTasks,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

/// The events that a process parks together because of a panic, and then in each further minute.
const PARKED_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// Counts the events that are parked because of a panic.
pub(crate) fn parks() -> Arc<tokio::sync::Mutex<DefaultDirectRateLimiter>> {
    Arc::new(tokio::sync::Mutex::new(RateLimiter::direct(Quota::per_minute(PARKED_PER_MINUTE))))
}

/// The message of an event. It is parked untouched if the event cannot be used.
struct Message {
    body: Vec<u8>,
    routing_key: String,
    acker: Acker,
}

impl Intake {
    /// Processes a batch to its end. When that is abandoned, the unacknowledged events come again. A panic at one event
    /// rejects this event only. Any other panic ends the process.
    pub(crate) async fn take(self, batch: Vec<Received>, Turn { under_way, storing }: Turn) {
        let _watched = self.essential.watch("batch of events");
        let began = Instant::now();
        self.metrics.batch_size.observe(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
        let now = OffsetDateTime::now_utc();
        let accepted = AcceptedPeriod::at(self.database.now(), self.keep);
        let (mut usable, mut unusable, mut panicked) = (Vec::new(), Vec::new(), Vec::new());
        for Received { body, routing_key, redelivered, traceparent, acker, .. } in batch {
            let span = self.spans.begin(traceparent.as_ref(), &routing_key, now);
            let parse = || {
                fault::at(fault::Step::Read, &body);
                Usable::parse(&body, Redelivered::from(redelivered), self.data_limit, accepted)
            };
            let parsed = catch_unwind(AssertUnwindSafe(parse));
            let message = Message { body, routing_key, acker };
            match parsed {
                Err(_) => panicked.push((message, traceparent, span)),
                Ok(Ok(event)) => {
                    let event = event.traced(traceparent, span);
                    let NewEvent { id, tenant, event_type, traceparent, .. } = event.event();
                    let traceparent = text(traceparent.as_ref());
                    tracing::debug!(event = %id, %event_type, %tenant, redelivered, traceparent, "an event came");
                    usable.push((event, message));
                }
                Ok(Err(rejection)) => unusable.push(self.rejected(message, traceparent.as_ref(), span, &rejection)),
            }
        }
        let under_way = Arc::new(UnderWay { _permit: under_way, began, seconds: self.metrics.batch_seconds.clone() });
        tokio::join!(
            self.deliver(usable, Size::Whole, Some(Arc::clone(&under_way)), storing),
            self.reject(unusable, Some(under_way)),
            async {
                for (message, traceparent, span) in panicked {
                    self.park(message, traceparent.as_ref(), span).await;
                }
            }
        );
    }

    /// Counts and logs an unusable event. Returns what is to be published to the queue of rejected ones.
    fn rejected(
        &self,
        Message { body, routing_key, acker }: Message,
        traceparent: Option<&Traceparent>,
        span: Option<EventSpan>,
        rejection: &Rejection,
    ) -> Publication<Vec<Acker>, Outgoing> {
        let reason = rejection.reason();
        tracing::warn!(reason, detail = %rejection, traceparent = text(traceparent), "an unusable event is rejected");
        self.metrics.event("rejected");
        spans::end_rejected(span, reason);
        let (queue, now) = (self.names.rejected(), OffsetDateTime::now_utc());
        let content = rejected(queue, body, routing_key, rejection, now).traced(traceparent);
        Publication { sources: vec![Arc::new(vec![acker])], content }
    }

    /// Publishes unusable events to the queue of rejected ones. Runs beside `deliver`, as that queue may refuse.
    async fn reject(&self, unusable: Publications<Acker>, under_way: Option<Arc<UnderWay>>) {
        if !unusable.is_empty() {
            self.publish_then_ack("rejecting events", unusable, Vec::new(), under_way).await;
        }
    }

    /// Parks an event at which ingest panics, once it is its turn. Ten and then ten a minute are. Others wait, so that ingest
    /// stops in the end: the fault may be another one than theirs, and the next version stores them. An event whose message
    /// was lost meanwhile comes again.
    async fn park(&self, message: Message, traceparent: Option<&Traceparent>, span: Option<EventSpan>) {
        let is_its_turn = async {
            let parks = self.parks.lock().await;
            if message.acker.is_usable() && parks.check().is_err() {
                tracing::error!(
                    "ingest panics at more than {PARKED_PER_MINUTE} events a minute: others wait. See those that are \
                     parked (webhookctl rejected list), and report it"
                );
                parks.until_ready().await;
            }
        };
        if self.shutdown.run_until_cancelled(is_its_turn).await.is_some() && message.acker.is_usable() {
            let rejected = self.rejected(message, traceparent, span, &Rejection::Panicked);
            self.reject(vec![rejected], None).await;
        }
    }

    /// Stores usable events and publishes their jobs. Releases the store permit once their jobs are known. There is
    /// one under high load only.
    ///
    /// A batch that cannot be stored is halved, and neither half waits for the other. So what is too much for one
    /// statement is stored in several, and an event that cannot be stored at all holds up no other. The halves hold no
    /// permits: the prefetch bounds them (backpressure). A batch whose storing panics is halved as well, until the event
    /// is alone: it is rejected.
    async fn deliver(
        &self,
        mut usable: Vec<(Usable, Message)>,
        size: Size,
        under_way: Option<Arc<UnderWay>>,
        storing: Option<OwnedSemaphorePermit>,
    ) {
        if usable.is_empty() {
            return;
        }
        let stored = AssertUnwindSafe(self.stored(&usable, size)).catch_unwind().await;
        drop(storing);
        let Jobs { main, bulk, judged, events } = match stored.unwrap_or(Err(NotStored::Panicked)) {
            Ok(jobs) => jobs,
            Err(NotStored::Abandoned) => return,
            Err(NotStored::Panicked) if usable.len() == 1 => {
                drop(under_way);
                for (mut event, message) in usable {
                    let span = event.span.take();
                    self.park(message, event.event().traceparent.as_ref(), span).await;
                }
                return;
            }
            Err(NotStored::Together | NotStored::Panicked) => {
                drop(under_way);
                let other = usable.split_off(usable.len() / 2);
                let [one, other] = [usable, other].map(|half| Box::pin(self.deliver(half, Size::Part, None, None)));
                tokio::join!(one, other);
                return;
            }
        };
        let (mut waiting, mut spans) = (WaitingEvents::new(events), Vec::new());
        for ((usable, Message { acker, .. }), Judged { event, verdict }) in usable.into_iter().zip(judged) {
            waiting.add(event, acker);
            spans.extend(spans::judged(usable, verdict));
        }
        let job = |(_, job): &EventJob| *job;
        let mut messages = match self.high_load.count(main.len() + bulk.len(), Instant::now()) {
            true => self.names.jobs_together(&main, job),
            false => self.names.jobs_alone(&main, job),
        };
        messages.extend(self.names.jobs_in_bulk(&bulk, job));
        let (messages, ready) = waiting.publications(messages);
        if self.publish_then_ack("publishing jobs", messages, ready, under_way).await.is_some() {
            spans::end_all(spans);
        }
    }

    /// Publishes messages and acknowledges the events that wait for them. Drops `under_way` once nothing is left to do
    /// but to acknowledge, or to wait for a queue that refuses: `Publishing::until_confirmed` calls back then, possibly
    /// with no event to acknowledge. The prefetch bounds what waits for such a queue. Returns `None` when it was
    /// abandoned.
    async fn publish_then_ack(
        &self,
        what: &'static str,
        messages: Publications<Acker>,
        ready: Vec<Vec<Acker>>,
        under_way: Option<Arc<UnderWay>>,
    ) -> Option<()> {
        let under_way = Mutex::new(under_way);
        let acknowledge = |sources: Vec<Vec<Acker>>| {
            drop(under_way.lock().take());
            Acker::ack_all(sources.into_iter().flatten().collect())
        };
        let publishing = Publishing { what, publisher: &self.publisher, abandon: &self.abandon };
        publishing.until_confirmed(messages, ready, content, acknowledge).await
    }

    /// Stores usable events, and returns their jobs.
    async fn stored(&self, usable: &[(Usable, Message)], size: Size) -> Result<Jobs, NotStored> {
        let plan = Plan::new(usable.iter().map(|(event, _)| event));
        let result = self.store(&plan, size).instrument(span_of(&plan)).await;
        let StoreResult { stored, may_be_older } = result.ok_or(NotStored::Abandoned)?;
        let jobs = self.jobs(&plan, stored.ok_or(NotStored::Together)?, may_be_older).await;
        jobs.ok_or(NotStored::Abandoned)
    }

    /// Stores events and deliveries. Tries again until it succeeds, or until it fails where fewer events may be stored.
    async fn store(&self, plan: &Plan, size: Size) -> Option<StoreResult> {
        let mut tries = 0_u32;
        let store = || {
            tries += 1;
            async {
                // Parts of failed batches take turns: the other batches need the ledger's connections.
                let _turn = match size {
                    Size::Whole => None,
                    Size::Part => self.part_turn.acquire().await.ok(),
                };
                plan.events.iter().for_each(|event| fault::at(fault::Step::Store, &event.body));
                match self.ledger.events_store(&plan.events).await {
                    Err(error) if plan.events.len() > 1 && may_be_less(&error) => {
                        let (error, events) = (&error as &dyn Error, plan.events.len());
                        tracing::warn!(error, events, "events could not be stored: tried in halves");
                        Ok(None)
                    }
                    done => done.map(Some),
                }
            }
        };
        let stored = until_done("storing events", &self.abandon, store).await?;
        Some(StoreResult { stored, may_be_older: tries > 1 || size == Size::Part })
    }

    /// The jobs of new deliveries, and of untried ones that an earlier try or process may have stored. Untried ones take
    /// the main lane, even if their tenant floods.
    async fn jobs(&self, plan: &Plan, stored: Stored, may_be_older: bool) -> Option<Jobs> {
        let judged = plan.judge(&stored);
        for Judged { event, verdict } in &judged {
            let event = &plan.events[*event];
            let traceparent = text(event.traceparent.as_ref());
            tracing::debug!(event = %event.id, outcome = verdict, traceparent, "an event is judged");
            self.metrics.event(verdict);
        }
        let new = stored.deliveries;
        self.metrics.deliveries.inc_by(u64::try_from(new.len()).unwrap_or_default());
        let mut of_tenants = HashMap::new();
        for (event, _) in &new {
            *of_tenants.entry(plan.events[*event].tenant).or_insert(0) += 1;
        }
        let floods = self.flood.count(&of_tenants, Instant::now());
        let mut untried = Vec::new();
        // A try whose answer was lost may have stored what the last try found there already.
        let doubtful = if may_be_older { (0..plan.events.len()).collect() } else { plan.redelivered() };
        for some in doubtful.chunks(EVENTS_OF_A_QUERY) {
            let events: Vec<_> = some.iter().map(|event| &plan.events[*event]).collect();
            let find = || self.ledger.deliveries_untried(&events);
            let found = until_done("finding untried deliveries", &self.abandon, find).await?;
            untried.extend(found.into_iter().map(|(place, delivery)| (some[place], delivery)));
        }
        if !untried.is_empty() {
            let new: HashSet<_> = new.iter().copied().collect();
            untried.retain(|one| !new.contains(one));
        }
        let job = |(event, delivery): (usize, DeliveryId)| (event, Job { delivery, attempt: 1 });
        let (mut bulk, mut main): (Vec<EventJob>, Vec<EventJob>) =
            new.into_iter().map(job).partition(|(event, _)| floods.contains(&plan.events[*event].tenant));
        main.extend(untried.into_iter().map(job));
        // In the order in which the events came.
        main.sort_by_key(|(event, _)| *event);
        bulk.sort_by_key(|(event, _)| *event);
        Some(Jobs { main, bulk, judged, events: plan.events.len() })
    }
}

/// A batch, until nothing is left to do for it but to acknowledge, or to wait for a queue that refuses.
struct UnderWay {
    _permit: OwnedSemaphorePermit,
    began: Instant,
    seconds: Histogram,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

struct Jobs {
    main: Vec<EventJob>,
    /// Of tenants that flood.
    bulk: Vec<EventJob>,
    /// The event of each message, and what became of it.
    judged: Vec<Judged>,
    /// The number of events.
    events: usize,
}

/// The reason why events have no jobs.
enum NotStored {
    /// The shutdown's deadline has passed.
    Abandoned,
    /// Fewer events may be stored.
    Together,
    Panicked,
}

/// What is being stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    /// A whole batch.
    Whole,
    /// A part of a batch that could not be stored at once.
    Part,
}

/// The result of storing events.
struct StoreResult {
    /// `None` when it failed, and fewer events may be stored.
    stored: Option<Stored>,
    /// Whether an earlier call, which failed, may have stored them.
    may_be_older: bool,
}

/// The trace as a field of the log. Without one there is no field.
fn text(traceparent: Option<&Traceparent>) -> Option<&str> {
    traceparent.map(Traceparent::as_str)
}

/// The span in which a plan's events are stored: that of the event if it is the only one and has a trace. So the log of
/// an event that cannot be stored, which is tried alone in the end, names it.
fn span_of(plan: &Plan) -> Span {
    match plan.events.as_slice() {
        [NewEvent { id, traceparent: Some(trace), .. }] => {
            tracing::warn_span!("event", event = %id, traceparent = %trace)
        }
        _ => Span::none(),
    }
}

/// Whether fewer events may be stored after this error. Without a connection, none can be.
const fn may_be_less(error: &LedgerError) -> bool {
    matches!(error, LedgerError::Query(_) | LedgerError::Timeout(_))
}
