//! One batch of events: read, store, publish, acknowledge.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{Acker, Names, Outgoing, Publisher, Received};
use domain::{AcceptedPeriod, DeliveryId, Job, Redelivered, Rejection, Traceparent, error_chain};
use futures_util::{FutureExt, StreamExt, stream};
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
    ack_batch::AckBatch,
    fault,
    flood::Flood,
    metrics::Metrics,
    plan::{Judged, Plan, Usable, rejected},
    spans::{self, Spans},
    waiting_events::{EventJob, Publications, WaitingEvents, content},
};

/// Deliveries of a tenant and event type in one batch that are very many: their events take turns, and no other event
/// waits for them.
const LARGE_FAN_OUT_DELIVERIES: u32 = 1_000;

/// Statements for events with very many deliveries that run, or whose jobs are being published, at a time.
const MAX_LARGE_STATEMENTS: usize = 2;

/// Events in one call for untried deliveries. It looks at every webhook that their tenants ever had, in a query for each
/// week of the events.
const EVENTS_PER_CALL: usize = 16;

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
    pub(crate) flood: Flood,
    pub(crate) turns: StoreTurns,
    pub(crate) acks: AckBatch,
    /// Counts the events that are parked because of a panic. One of them waits for that at a time.
    pub(crate) parks: Arc<tokio::sync::Mutex<DefaultDirectRateLimiter>>,
    /// Cancelled when the shutdown begins.
    pub(crate) shutdown: CancellationToken,
    pub(crate) essential: EssentialTasks,
    /// Cancelled when the shutdown's deadline has passed.
    pub(crate) abandon: CancellationToken,
}

/// The turns of events that are stored after others, which need the ledger's connections, and the server's time.
#[derive(Clone)]
pub(crate) struct StoreTurns {
    /// Of events whose storing failed: one statement with such events runs at a time.
    failed: Arc<Semaphore>,
    /// Of events with very many deliveries. It is held until their jobs are published, as memory holds these.
    large: Arc<Semaphore>,
}

impl StoreTurns {
    pub(crate) fn new() -> Self {
        Self { failed: Arc::new(Semaphore::new(1)), large: Arc::new(Semaphore::new(MAX_LARGE_STATEMENTS)) }
    }
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
    /// Processes a batch to its end: `came_at`, by the database's clock. When that is abandoned, the unacknowledged events come again. A panic at one event
    /// rejects this event only. Any other panic ends the process. `under_way` is held until nothing is left to do but to
    /// acknowledge.
    pub(crate) async fn take(self, batch: Vec<Received>, came_at: OffsetDateTime, under_way: OwnedSemaphorePermit) {
        let _watched = self.essential.watch("batch of events");
        let began = Instant::now();
        self.metrics.batch_size.observe(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
        let now = OffsetDateTime::now_utc();
        let accepted = AcceptedPeriod::at(came_at, self.keep);
        let (mut usable, mut unusable, mut panicked) = (Vec::new(), Vec::new(), Vec::new());
        for Received { body, routing_key, redelivered, content_encoding, traceparent, acker, .. } in batch {
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
                    let NewEvent { id, tenant, event_type, traceparent, .. } = &event.event;
                    let traceparent = text(traceparent.as_ref());
                    tracing::debug!(event = %id, %event_type, %tenant, redelivered, traceparent, "an event came");
                    usable.push((event, message));
                }
                Ok(Err(rejection)) => {
                    let rejection = rejection.of_encoding(content_encoding.as_deref());
                    unusable.push(self.rejected(message, traceparent.as_ref(), span, &rejection));
                }
            }
        }
        let under_way = Arc::new(UnderWay { _permit: under_way, began, seconds: self.metrics.batch_seconds.clone() });
        let under_way_too = Some(Arc::clone(&under_way));
        let whole = StoreBatch { usable, may_be_older: false, is_large: false, under_way: under_way_too };
        tokio::join!(self.deliver(whole), self.reject(unusable, Some(under_way)), async {
            for (message, traceparent, span) in panicked {
                self.park(message, traceparent.as_ref(), span).await;
            }
        });
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

    /// Stores usable events and publishes their jobs, statement by statement. The first ones store what makes few
    /// deliveries. What they leave, bursts of tenants with very many webhooks, holds up no other event: it holds no
    /// permits of batches, as the prefetch bounds it (backpressure).
    async fn deliver(&self, batch: StoreBatch) {
        let statements = stream::unfold(batch, |batch| self.deliver_some(batch));
        statements.for_each_concurrent(None, |stored| self.publish(stored)).await;
    }

    /// Stores as many events as one statement stores, unless their channel is lost: then they come again. Returns them
    /// with their jobs, and the rest.
    ///
    /// Events that cannot be stored are halved, and neither half waits for the other. So an event that cannot be stored
    /// at all holds up no other. The halves hold no permits either. Events whose storing panics are halved as well,
    /// until the event is alone: it is rejected.
    async fn deliver_some(&self, mut batch: StoreBatch) -> Option<(Deliverable, StoreBatch)> {
        batch.usable.retain(|(_, message)| message.acker.is_usable());
        if batch.usable.is_empty() {
            return None;
        }
        let stored = AssertUnwindSafe(self.stored(&batch)).catch_unwind().await;
        let StoreBatch { mut usable, is_large, under_way, .. } = batch;
        let Jobs { main, bulk, judged, events, may_be_older, turn } = match stored.unwrap_or(Err(NotStored::Panicked)) {
            Ok(jobs) => jobs,
            Err(NotStored::Abandoned) => return None,
            Err(NotStored::Panicked) if usable.len() == 1 => {
                drop(under_way);
                for (mut event, message) in usable {
                    let span = event.span.take();
                    self.park(message, event.event.traceparent.as_ref(), span).await;
                }
                return None;
            }
            Err(NotStored::Together | NotStored::Panicked) => {
                drop(under_way);
                let other = usable.split_off(usable.len() / 2);
                let half = |usable| StoreBatch { usable, may_be_older: true, is_large, under_way: None };
                let [one, other] = [usable, other].map(|events| Box::pin(self.deliver(half(events))));
                tokio::join!(one, other);
                return None;
            }
        };
        let all = usable.len();
        let (mut waiting, mut spans, mut rest) = (WaitingEvents::new(events), Vec::new(), Vec::new());
        for ((usable, message), Judged { event, verdict }) in usable.into_iter().zip(judged) {
            match verdict {
                Some(verdict) => {
                    waiting.add(event, message.acker);
                    spans.extend(spans::judged(usable, verdict));
                }
                None => rest.push((usable, message)),
            }
        }
        // Nothing is stored: only events with very many deliveries are left.
        let is_large = is_large || rest.len() == all;
        let goes_on_under_way = if is_large || may_be_older { None } else { under_way.clone() };
        let rest = StoreBatch { usable: rest, may_be_older, is_large, under_way: goes_on_under_way };
        Some((Deliverable { main, bulk, waiting, spans, under_way, turn }, rest))
    }

    /// Publishes the jobs of stored events and acknowledges these.
    async fn publish(&self, stored: Deliverable) {
        let Deliverable { main, bulk, waiting, spans, under_way, turn: _turn } = stored;
        let job = |(_, job): &EventJob| *job;
        let mut messages = match self.flood.is_high_load(Instant::now()) {
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
            self.acks.add(sources.into_iter().flatten().collect())
        };
        let publishing = Publishing { what, publisher: &self.publisher, abandon: &self.abandon };
        publishing.until_confirmed(messages, ready, content, acknowledge).await
    }

    /// Stores usable events, and returns their jobs.
    async fn stored(&self, batch: &StoreBatch) -> Result<Jobs, NotStored> {
        let plan = Plan::new(batch.usable.iter().map(|(event, _)| event));
        let (stored, may_be_older, turn) = self.store(&plan, batch).instrument(span_of(&plan)).await?;
        let jobs = self.jobs(&plan, stored, may_be_older).await.ok_or(NotStored::Abandoned)?;
        Ok(Jobs { turn, ..jobs })
    }

    /// Stores events and deliveries, as many as one statement stores. Tries again until it succeeds, or until it fails
    /// where fewer events may be stored. Returns as well whether an earlier call, which failed, may have stored them,
    /// and the turn that their jobs hold.
    async fn store(&self, plan: &Plan, batch: &StoreBatch) -> Result<StoredInTurn, NotStored> {
        let mut tries = 0_u32;
        let store = || {
            tries += 1;
            async {
                plan.events.iter().for_each(|event| fault::at(fault::Step::Store, &event.body));
                let (stored, turn) = if batch.is_large {
                    let Some(turn) = self.turn_of_large(batch).await else { return Ok(Err(NotStored::Abandoned)) };
                    (self.ledger.events_store(&plan.events).await, Some(turn))
                } else {
                    let _turn = if batch.may_be_older { self.turns.failed.acquire().await.ok() } else { None };
                    (self.ledger.events_store_below(&plan.events, LARGE_FAN_OUT_DELIVERIES).await, None)
                };
                match stored {
                    Err(error) if (plan.events.len() > 1 || batch.under_way.is_some()) && may_be_less(&error) => {
                        let (error, events) = (error_chain(&error), plan.events.len());
                        tracing::warn!(error, events, "events could not be stored: tried again apart from others");
                        Ok(Err(NotStored::Together))
                    }
                    done => done.map(|stored| Ok((stored, turn))),
                }
            }
        };
        let stored = until_done("storing events", &self.abandon, store).await.ok_or(NotStored::Abandoned)?;
        let (stored, turn) = stored?;
        Ok((stored, tries > 1 || batch.may_be_older, turn))
    }

    /// Waits for the turn of events with very many deliveries. `None` if they stay on the queue: the shutdown began,
    /// or their channel was lost.
    async fn turn_of_large(&self, batch: &StoreBatch) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.turns.large).acquire_owned();
        let turn = self.shutdown.run_until_cancelled(turn).await?.ok()?;
        batch.usable.iter().any(|(_, message)| message.acker.is_usable()).then_some(turn)
    }

    /// The jobs of new deliveries, and of untried ones that an earlier try or process may have stored.
    async fn jobs(&self, plan: &Plan, stored: Stored, may_be_older: bool) -> Option<Jobs> {
        let judged = plan.judge(&stored);
        for Judged { event, verdict } in &judged {
            let (event, Some(verdict)) = (&plan.events[*event], verdict) else { continue };
            let traceparent = text(event.traceparent.as_ref());
            tracing::debug!(event = %event.id, outcome = verdict, traceparent, "an event is judged");
            self.metrics.event(verdict);
        }
        let Stored { mut deliveries, left, .. } = stored;
        self.metrics.deliveries.inc_by(u64::try_from(deliveries.len()).unwrap_or_default());
        // A try whose answer was lost may have stored what the last try found there already.
        let mut doubtful = if may_be_older { (0..plan.events.len()).collect() } else { plan.redelivered() };
        let left: HashSet<_> = left.into_iter().collect();
        doubtful.retain(|event| !left.contains(event));
        let mut untried = Vec::new();
        for some in doubtful.chunks(EVENTS_PER_CALL) {
            let events: Vec<_> = some.iter().map(|event| &plan.events[*event]).collect();
            let find = || self.ledger.deliveries_untried(&events);
            let found = until_done("finding untried deliveries", &self.abandon, find).await?;
            untried.extend(found.into_iter().map(|(place, delivery)| (some[place], delivery)));
        }
        if !untried.is_empty() {
            let new: HashSet<_> = deliveries.iter().copied().collect();
            deliveries.extend(untried.into_iter().filter(|one| !new.contains(one)));
        }
        // In the order in which the events came.
        deliveries.sort_by_key(|(event, _)| *event);
        let tenant = |event: usize| plan.events[event].tenant;
        let mut of_tenants = HashMap::new();
        for (event, _) in &deliveries {
            *of_tenants.entry(tenant(*event)).or_insert(0) += 1;
        }
        let floods = self.flood.count(&of_tenants, Instant::now());
        let job = |(event, delivery): (usize, DeliveryId)| (event, Job { delivery, attempt: 1 });
        let (bulk, main) = deliveries.into_iter().map(job).partition(|(event, _)| floods.contains(&tenant(*event)));
        Some(Jobs { main, bulk, judged, events: plan.events.len(), may_be_older, turn: None })
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
    /// An earlier call, which failed, may have stored these and other events.
    may_be_older: bool,
    /// Of events with very many deliveries.
    turn: Option<OwnedSemaphorePermit>,
}

/// Stored events, whether they may be older, and the turn of those with very many deliveries.
type StoredInTurn = (Stored, bool, Option<OwnedSemaphorePermit>);

/// Stored events with their jobs.
struct Deliverable {
    main: Vec<EventJob>,
    bulk: Vec<EventJob>,
    waiting: WaitingEvents<Acker>,
    spans: Vec<EventSpan>,
    under_way: Option<Arc<UnderWay>>,
    turn: Option<OwnedSemaphorePermit>,
}

/// The reason why events have no jobs.
enum NotStored {
    /// They stay on the queue.
    Abandoned,
    /// Fewer events may be stored.
    Together,
    Panicked,
}

/// Events to be stored.
struct StoreBatch {
    usable: Vec<(Usable, Message)>,
    /// An earlier call, which failed, may have stored them.
    may_be_older: bool,
    /// Those of each tenant and event type make very many deliveries.
    is_large: bool,
    /// Until only events with very many deliveries are left, or storing fails.
    under_way: Option<Arc<UnderWay>>,
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
