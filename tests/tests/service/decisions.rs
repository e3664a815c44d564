//! The decisions that SQL makes: each statement of the ledger runs over every small row, and the rows are compared with what
//! the function says by which the model decides.

use std::{collections::HashSet, fmt::Debug, hash::Hash, time::Duration};

use bytes::Bytes;
use domain::{
    DeliveryId, DeliveryState, EventType, Job, OutcomeClass, PostResult, Progress, Timestamp, WebhookId, WebhookState,
};
use end_to_end::system::{Options, TestSystem};
use ledger::{
    Actor, Attempted, JobToHold, Leader, Ledger, NewEvent, PromisedJob, Record, ReleaseRate, RetentionTimes, Stream,
    StreamPosition, Waiting,
};
use model::{HoldReason, JobPlaces, RowDecisions, WebhookDecisions};
use time::{OffsetDateTime, macros::datetime};
use uuid::Uuid;

const PAST: OffsetDateTime = datetime!(2026-03-01 09:30 UTC);
/// The time of the statement.
const NOW: OffsetDateTime = datetime!(2026-03-01 09:31 UTC);
const FUTURE: OffsetDateTime = datetime!(2100-01-01 00:00 UTC);
/// A time that a statement sets.
const SET: OffsetDateTime = datetime!(2100-01-02 00:00 UTC);
const TENANT: Uuid = Uuid::from_u128(7);
/// The deadline for a statement over all rows.
const LONG: Duration = Duration::from_secs(60);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
const MAX_FOUND: u32 = 10_000;

/// Every small row with each of these variants of what else a statement depends on.
fn every<V: Copy>(variants: &[V]) -> Vec<(Progress, V)> {
    let mut rows = Vec::new();
    for (state, attempts, run_base) in product3(&DeliveryState::ALL, &[0, 1, 2], &[0, 1]) {
        for (first_failed_at, next_attempt_at, variant) in
            product3(&[None, Some(PAST)], &[None, Some(PAST), Some(FUTURE)], variants)
        {
            rows.push((Progress { state, attempts, run_base, first_failed_at, next_attempt_at }, variant));
        }
    }
    rows
}

/// Every small row without the columns that do not matter to whether a row needs a message.
fn every_place<V: Copy>(variants: &[V]) -> Vec<(Progress, V)> {
    let is_first_run = |row: &Progress| row.run_base == 0 && row.first_failed_at.is_none();
    every(variants).into_iter().filter(|(row, _)| is_first_run(row)).collect()
}

/// Fewer rows, for a statement on one of them.
fn few() -> Vec<(Progress, ())> {
    every(&[()]).into_iter().filter(|(row, ())| row.first_failed_at == row.next_attempt_at).collect()
}

fn product3<A: Copy, B: Copy, C: Copy>(a: &[A], b: &[B], c: &[C]) -> Vec<(A, B, C)> {
    let of_one = |a: A| b.iter().flat_map(move |b| c.iter().map(move |c| (a, *b, *c)));
    a.iter().flat_map(|a| of_one(*a)).collect()
}

fn webhook(state: WebhookState) -> WebhookId {
    Uuid::from_u128(state as u128).into()
}

/// The event of the row with this number.
fn event(number: usize, timestamp: Timestamp) -> NewEvent {
    NewEvent {
        id: Uuid::from_u128(number as u128).into(),
        timestamp,
        tenant: TENANT.into(),
        event_type: EventType::QuoteClosed,
        body: Bytes::new(),
        traceparent: None,
    }
}

/// The delivery of an event to the webhook in this state.
fn delivery(event: &NewEvent, state: WebhookState) -> DeliveryId {
    DeliveryId::derive(webhook(state), event.id, event.event_type, event.timestamp)
}

/// Rows with their variants in a ledger of their own.
struct Table<V> {
    system: TestSystem,
    ledger: Ledger,
    /// The event of each row.
    events: Vec<NewEvent>,
    rows: Vec<(DeliveryId, Progress, V)>,
}

impl<V: Copy + Debug> Table<V> {
    async fn of(rows: Vec<(Progress, V)>, webhook_state: impl Fn(V) -> WebhookState) -> Self {
        let system = TestSystem::prepared(Options::default()).await;
        let timestamp = OffsetDateTime::now_utc().try_into().unwrap();
        let events: Vec<_> = (0..rows.len()).map(|number| event(number, timestamp)).collect();
        let with_id = |(event, (row, variant))| (delivery(event, webhook_state(variant)), row, variant);
        let rows: Vec<_> = events.iter().zip(rows).map(with_id).collect();
        for state in WebhookState::ALL {
            let (is_active, is_deleted) = (state == WebhookState::Active, state == WebhookState::Deleted);
            let insert = format!(
                "INSERT INTO webhooks (id, tenant_id, name, url, events, is_active, secret_key_id, secret_sealed, deleted_at) \
                 VALUES ('{}', '{TENANT}', '', '', '{{quote.closed}}', {is_active}, '', '', CASE WHEN {is_deleted} THEN now() END)",
                webhook(state)
            );
            system.sql(&insert).await;
        }
        let time = |time: Option<OffsetDateTime>| time.map_or("NULL".to_owned(), |time| format!("'{time}'"));
        let values = rows.iter().zip(&events).map(|((id, row, variant), event)| {
            let Progress { state, attempts, run_base, first_failed_at, next_attempt_at } = row;
            let (webhook, event) = (webhook(webhook_state(*variant)), event.id);
            let (failed, due) = (time(*first_failed_at), time(*next_attempt_at));
            format!(
                "('{id}', '{webhook}', '{event}', 'quote.closed', '{state}', {attempts}, {run_base}, {failed}, {due})"
            )
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let columns =
            "id, webhook_id, event_id, event_type, state, attempts, run_base, first_failed_at, next_attempt_at";
        system.sql(&format!("INSERT INTO deliveries ({columns}) VALUES {values}")).await;
        let events_of = format!(
            "INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
             SELECT moment_of(id), event_id, '{TENANT}', event_type, '' FROM deliveries"
        );
        system.sql(&events_of).await;
        let ledger = system.ledger_as("decides", 2).with_pool(2, LONG).unwrap();
        Self { system, ledger, events, rows }
    }

    fn ids(&self) -> Vec<DeliveryId> {
        self.rows.iter().map(|(id, ..)| *id).collect()
    }

    /// Runs a statement on the deliveries (`those`) of some variants.
    async fn with(&self, is_one: impl Fn(V) -> bool, statement: &str) {
        let ids: Vec<_> = self.rows.iter().filter(|(.., one)| is_one(*one)).map(|(id, ..)| id.to_string()).collect();
        let those = format!("WITH those AS (SELECT * FROM deliveries WHERE id = ANY ('{{{}}}'))", ids.join(","));
        self.system.sql(&format!("{those} {statement}")).await;
    }

    /// Asserts that each row is now what the function makes of the row before, or is unchanged.
    async fn became(&self, function: impl Fn(&Progress, V) -> Option<Progress>) {
        let loaded = self.ledger.deliveries_load(&self.ids()).await.unwrap();
        let differing = self.rows.iter().zip(loaded).filter_map(|((_, row, variant), loaded)| {
            let loaded = loaded.unwrap();
            let is_now = |time: &OffsetDateTime| (loaded.created_at..OffsetDateTime::now_utc()).contains(time);
            let time = |time: OffsetDateTime| if is_now(&time) { NOW } else { time };
            let next_attempt_at = loaded.progress.next_attempt_at.map(time);
            let (found, expected) =
                (Progress { next_attempt_at, ..loaded.progress }, function(row, *variant).unwrap_or(*row));
            (found != expected).then_some((row, variant, found, expected))
        });
        none(differing);
    }

    /// Asserts that the leader finds the jobs of those rows that the function says need a message.
    async fn needs_message(
        &self,
        found: Vec<Waiting>,
        needs: impl Fn(&Progress, V) -> bool,
        webhook_state: impl Fn(V) -> WebhookState,
    ) {
        let differing = self.rows.iter().filter_map(|(id, row, variant)| {
            let found: Vec<_> = found.iter().filter(|one| one.job.delivery == *id).collect();
            let found: Vec<_> = found.into_iter().map(|one| (one.job, one.webhook, one.is_active)).collect();
            let state = webhook_state(*variant);
            let job = (next_job(*id, row), webhook(state), state == WebhookState::Active);
            let expected: Vec<_> = needs(row, *variant).then_some(job).into_iter().collect();
            (found != expected).then_some((row, variant, found, expected))
        });
        none(differing);
    }

    async fn leader(&self) -> Leader {
        let candidate = self.system.ledger_as("leads", 1).candidate().await.unwrap();
        candidate.lead().await.unwrap().unwrap_or_else(|_| panic!("another one leads"))
    }
}

fn none<T: Debug>(differing: impl Iterator<Item = T>) {
    let differing: Vec<T> = differing.collect();
    assert!(
        differing.is_empty(),
        "{} rows differ, the first ones: {:#?}",
        differing.len(),
        &differing[..differing.len().min(3)]
    );
}

fn same<T: Debug + Eq + Hash>(found: impl IntoIterator<Item = T>, expected: &HashSet<T>) {
    none(found.into_iter().collect::<HashSet<T>>().symmetric_difference(expected));
}

const fn active<V: Copy>(_: V) -> WebhookState {
    WebhookState::Active
}

const fn next_job(delivery: DeliveryId, row: &Progress) -> Job {
    Job { delivery, attempt: row.attempts + 1 }
}

/// Events that come again, as their message was redelivered: with rows of one webhook, while the others have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_makes_deliveries_as_webhook_state_says_and_finds_those_that_progress_calls_untried() {
    let table = Table::of(every(&WebhookState::ALL), |state| state).await;
    let stored = table.ledger.events_store(&table.events).await.unwrap();
    let (mut made, mut untried) = ([HashSet::new(), HashSet::new()], HashSet::new());
    for (number, (event, (id, row, of))) in table.events.iter().zip(&table.rows).enumerate() {
        untried.extend(row.is_untried().then_some((number, *id)));
        for state in WebhookState::ALL.into_iter().filter(|state| state != of) {
            let Some(new) = state.of_new_event() else { continue };
            made[usize::from(!new.is_waiting())].insert((number, delivery(event, state)));
            let is_untried = Progress { state: new, ..Progress::NEW }.is_untried();
            untried.extend(is_untried.then(|| (number, delivery(event, state))));
        }
    }
    let [waiting, skipped] = made;
    same(stored.deliveries, &waiting);
    same(stored.skipped, &skipped);
    table.became(|_, _| None).await;
    let events: Vec<&NewEvent> = table.events.iter().collect();
    let found = table.ledger.deliveries_untried(&events).await.unwrap();
    same(found, &untried);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_takes_a_record_as_progress_recorded_says() {
    let states = [DeliveryState::Retrying, DeliveryState::Dropped, DeliveryState::Succeeded];
    let made = |(attempts, run_base, state)| {
        let next_attempt_at = (state == DeliveryState::Retrying).then_some(SET);
        Progress { state, attempts, run_base, first_failed_at: Some(SET), next_attempt_at }
    };
    let made: Vec<_> = product3(&[1, 2, 3], &[0, 1], &states).into_iter().map(made).collect();
    let table = Table::of(every(&made), active).await;
    let attempted = |(id, _, made): &(DeliveryId, Progress, Progress)| Attempted {
        id: *id,
        webhook: webhook(WebhookState::Active),
        progress: *made,
        url: String::new(),
        signed_at: PAST,
        answer: PostResult {
            class: OutcomeClass::Status,
            status: Some(500),
            head: Vec::new(),
            error: None,
            started_at: NOW,
            elapsed: Duration::from_secs(1),
        },
        traceparent: None,
    };
    let attempts: Vec<_> = table.rows.iter().map(attempted).collect();
    let mut of_others = attempts.clone();
    of_others.iter_mut().for_each(|one| one.answer.started_at += Duration::from_micros(1));
    // The first answer may be lost, another dispatcher may have made attempts of the same numbers, and there may be later ones.
    let mut rows: Vec<_> = table.rows.iter().map(|(_, row, made)| (*row, made, false)).collect();
    for (call, attempts) in [&attempts, &attempts, &of_others, &attempts].into_iter().enumerate() {
        if call == 3 {
            table
                .with(|_| true, "UPDATE deliveries AS d SET attempts = d.attempts + 1 FROM those WHERE d.id = those.id")
                .await;
            rows.iter_mut().for_each(|(row, ..)| row.attempts += 1);
        }
        let records = table.ledger.attempts_record(attempts).await.unwrap();
        none(rows.iter_mut().zip(records).filter_map(|((row, made, is_own), record)| {
            let (before, new) = (*row, row.recorded(made));
            let expected = new.map_or(row.found(made.attempts, *is_own && call != 2), |new| Record::taken(&new));
            (*row, *is_own) = (new.unwrap_or(before), *is_own || new.is_some());
            (record != expected).then_some((call, before, *made, record, expected))
        }));
        if call == 0 {
            table.became(|row, made| row.recorded(&made)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_resent_as_progress_resent_says_and_then_in_the_outbox() {
    let table = Table::of(few(), active).await;
    let actor = Actor { tenant: TENANT.into(), user: String::new() };
    let kept = RetentionTimes { log: WEEK, bodies: WEEK };
    for id in table.ids() {
        _ = table.ledger.delivery_resend(&actor, webhook(WebhookState::Active), id, kept).await.unwrap();
    }
    table.became(|row, ()| row.resent(NOW)).await;
    let resent = table.rows.iter().filter(|(_, row, ())| row.resent(NOW).is_some()).count();
    assert_eq!(table.system.count("SELECT count(*) FROM promised_jobs").await, i64::try_from(resent).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_cancelled_as_progress_cancelled_says() {
    let table = Table::of(every(&[()]), active).await;
    table.ledger.deliveries_cancel(&table.ids()).await.unwrap();
    table.became(|row, ()| row.cancelled()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_the_outbox_is_due_now_as_progress_due_now_says() {
    let table = Table::of(every(&[()]), active).await;
    table.with(|()| true, "INSERT INTO promised_jobs (delivery_id, leased_until) SELECT id, now() FROM those").await;
    let leased = table.ledger.outbox_lease(u16::MAX).await.unwrap();
    table.became(|row, ()| row.due_now(NOW)).await;
    let waiting = table.rows.iter().filter(|(_, row, ())| row.due_now(NOW).is_some());
    let expected = waiting.map(|(id, row, ())| next_job(*id, row)).collect();
    same(leased.jobs().iter().map(|promised| promised.job), &expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_postponed_as_progress_postponed_says() {
    let table = Table::of(few(), active).await;
    for (id, row, ()) in &table.rows {
        let is_postponed = table.ledger.delivery_postpone(*id, 1, SET).await.unwrap();
        assert_eq!(is_postponed, row.postponed(1, SET).is_some(), "{row:?}");
    }
    table.became(|row, ()| row.postponed(1, SET)).await;
}

/// A message may have been published since the queues were lost: when the delivery was made, or after its last attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Since {
    Nothing,
    AttemptedBefore,
    Attempted,
    Made,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_finds_the_rows_of_which_progress_needs_message_says_so() {
    type Variant = (WebhookState, (bool, bool), Since);
    let places = [(false, false), (true, false), (false, true)];
    let since = [Since::Nothing, Since::AttemptedBefore, Since::Attempted, Since::Made];
    let table = Table::of(every_place(&product3(&WebhookState::ALL, &places, &since)), |(state, ..)| state).await;
    put(&table, |(_, place, _): Variant| place).await;
    let attempt = "INSERT INTO attempts (delivery_id, attempt, url, started_at, duration_us, outcome, response_body) \
                   SELECT id, attempts, '', now() + interval '30 minutes', 0, '', '' FROM those";
    table.with(|(.., since)| since == Since::Attempted, attempt).await;
    table.with(|(.., since)| since == Since::AttemptedBefore, &attempt.replace('+', "-")).await;
    let made = "UPDATE deliveries AS d SET created_at = now() + interval '30 minutes' FROM those WHERE d.id = those.id";
    table.with(|(.., since)| since == Since::Made, made).await;
    let (mut leader, since) = (table.leader().await, OffsetDateTime::now_utc() + Duration::from_secs(600));
    let mut found = Vec::new();
    for (stream, id) in [(Stream::Due, Uuid::nil()), (Stream::UntriedBackwards, Uuid::max())] {
        let place = StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id };
        found.extend(leader.waiting_find(stream, place, MAX_FOUND, since).await.unwrap().found);
    }
    // A job may be in the outbox, and published before the disk was lost.
    let needs = |row: &Progress, (state, (_, is_held), since): Variant| {
        let is_published = since == Since::Made || since == Since::Attempted && row.attempts > 0;
        state != WebhookState::Deleted && row.needs_message(JobPlaces { is_promised: false, is_held, is_published })
    };
    table.needs_message(found, needs, |(state, ..)| state).await;
}

/// What else is known of a job, or of the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    Parked,
    Requeued,
    RequeuedAnHourAgo,
    RequeuedTwiceAnHourAgo,
    PreviousRequeued,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_job_detection_finds_the_overdue_rows_of_which_progress_needs_message_says_so() {
    type Variant = (WebhookState, (bool, bool), Known);
    use Known::{Nothing, Parked, PreviousRequeued, Requeued, RequeuedAnHourAgo, RequeuedTwiceAnHourAgo};
    let places = [(false, false), (true, false), (false, true)];
    let known = [Nothing, Parked, Requeued, RequeuedAnHourAgo, RequeuedTwiceAnHourAgo, PreviousRequeued];
    let table = Table::of(every_place(&product3(&WebhookState::ALL, &places, &known)), |(state, ..)| state).await;
    put(&table, |(_, place, _): Variant| place).await;
    table.with(|(.., known)| known == Parked, "INSERT INTO suspect_jobs SELECT id, 1, now(), 'dead' FROM those").await;
    let mut leader = table.leader().await;
    for (known, before_next) in [
        (Requeued, 0),
        (RequeuedAnHourAgo, 0),
        (RequeuedTwiceAnHourAgo, 0),
        (RequeuedTwiceAnHourAgo, 0),
        (PreviousRequeued, 1),
    ] {
        let of = table.rows.iter().filter(|(.., (_, _, of))| *of == known);
        let next = |(id, row, _): &(DeliveryId, Progress, _)| next_job(*id, row);
        let jobs = of.map(next).map(|job| Job { attempt: job.attempt - before_next, ..job });
        leader.requeued_record(&jobs.collect::<Vec<_>>()).await.unwrap();
    }
    let hour =
        "UPDATE requeued_jobs SET requeued_at = requeued_at - interval '1 hour' FROM those WHERE delivery_id = id";
    table.with(|(.., known)| known == RequeuedAnHourAgo || known == RequeuedTwiceAnHourAgo, hour).await;
    let (mut found, now) = (Vec::new(), OffsetDateTime::now_utc());
    for stream in [Stream::Due, Stream::Untried] {
        let place = StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id: Uuid::nil() };
        found.extend(leader.overdue_find(stream, place, MAX_FOUND, (Some(now), MAX_FOUND)).await.unwrap().found);
    }
    let needs = |row: &Progress, (state, (is_promised, is_held), known): Variant| {
        let is_published = known == Requeued || known == RequeuedTwiceAnHourAgo;
        let is_overdue = row.next_attempt_at != Some(FUTURE) && known != Parked;
        state == WebhookState::Active
            && is_overdue
            && row.needs_message(JobPlaces { is_promised, is_held, is_published })
    };
    table.needs_message(found, needs, |(state, ..)| state).await;
}

/// Puts the jobs of some rows into the outbox, or holds them.
async fn put<V: Copy + Debug>(table: &Table<V>, place: impl Fn(V) -> (bool, bool)) {
    let promise = "INSERT INTO promised_jobs (delivery_id, leased_until) SELECT id, now() FROM those";
    table.with(|variant| place(variant).0, promise).await;
    let hold = "INSERT INTO held_jobs (webhook_id, delivery_id) SELECT webhook_id, id FROM those";
    table.with(|variant| place(variant).1, hold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_held_as_webhook_state_holds_says_with_the_greatest_number_of_its_deliveries() {
    type Variant = (WebhookState, HoldReason, (Option<u32>, u32));
    let numbers: Vec<_> = product3(&[None, Some(1), Some(3)], &[0, 2, 3], &[()]);
    let numbers: Vec<_> = numbers.into_iter().map(|(before, now, ())| (before, now)).collect();
    let variants = product3(&WebhookState::ALL, &[HoldReason::Paused, HoldReason::Slow], &numbers);
    let rows = variants.into_iter().map(|variant| (Progress::NEW, variant)).collect();
    let table = Table::of(rows, |(state, ..)| state).await;
    for number in [1, 3] {
        let hold = "INSERT INTO held_jobs (webhook_id, delivery_id, delivery_count) SELECT webhook_id, id";
        table.with(|(.., (before, _))| before == Some(number), &format!("{hold}, {number} FROM those")).await;
    }
    let held = |(id, _, (state, reason, (_, delivery_count))): &(DeliveryId, Progress, Variant)| JobToHold {
        webhook: webhook(*state),
        delivery: *id,
        delivery_count: *delivery_count,
        is_again: false,
        release: (*reason == HoldReason::Slow).then_some(ReleaseRate { batch: 1, pause: Duration::ZERO }),
    };
    // Two messages of each job, the one after the other.
    let jobs: Vec<JobToHold> = table.rows.iter().map(held).collect();
    let less = jobs.iter().map(|job| JobToHold { delivery_count: job.delivery_count.saturating_sub(1), ..*job });
    let jobs: Vec<JobToHold> = jobs.iter().copied().chain(less).collect();
    let is_held = table.ledger.jobs_hold(&jobs).await.unwrap();
    let rows = table.system.sql("SELECT delivery_id::text, delivery_count FROM held_jobs").await;
    none(table.rows.iter().enumerate().filter_map(|(number, (id, _, (state, reason, (before, delivery_count))))| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == id.to_string());
        let row = row.map(|row| u32::from(row.get::<_, i16>(1).unsigned_abs()));
        let holds = state.holds(*reason);
        let expected = (holds, holds, if holds { Some(before.unwrap_or(0).max(*delivery_count)) } else { *before });
        let found = (is_held[number], is_held[number + table.rows.len()], row);
        (found != expected).then_some((state, reason, before, delivery_count, found, expected))
    }));
}

/// Of each job the number of its deliveries by the broker, with which it is held, and with which it is in the outbox already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_job_of_an_active_webhook_is_due_now_and_in_the_outbox_with_the_greatest_number_of_its_deliveries() {
    type Variant = (WebhookState, u32, Option<u32>);
    let variants = product3(&WebhookState::ALL, &[0, 2], &[None, Some(1), Some(3)]);
    let table = Table::of(every_place(&variants), |(state, ..)| state).await;
    for number in [0, 2] {
        let hold = "INSERT INTO held_jobs (webhook_id, delivery_id, delivery_count) SELECT webhook_id, id";
        table.with(|(_, held, _): Variant| held == number, &format!("{hold}, {number} FROM those")).await;
    }
    for number in [1, 3] {
        let promise = "INSERT INTO promised_jobs (delivery_id, leased_until, delivery_count) SELECT id, now()";
        table.with(|(.., before)| before == Some(number), &format!("{promise}, {number} FROM those")).await;
    }
    let due = "INSERT INTO held_webhooks SELECT id, 1000000, now(), now() FROM webhooks";
    table.system.sql(due).await;
    let mut released = Vec::new();
    while let Some(step) = table.ledger.jobs_release(u16::MAX).await.unwrap() {
        released.extend(step.batch.iter().flat_map(|batch| batch.jobs().to_vec()));
    }
    let is_active = |state| state == WebhookState::Active;
    table.became(|row, (state, ..)| row.due_now(NOW).filter(|_| is_active(state))).await;
    let jobs = |of: &dyn Fn(&Progress, Variant) -> Option<u32>| {
        let job = |(id, row, one): &(DeliveryId, Progress, Variant)| {
            of(row, *one).map(|delivery_count| PromisedJob { job: next_job(*id, row), delivery_count })
        };
        table.rows.iter().filter_map(job).collect::<HashSet<_>>()
    };
    let greatest = |row: &Progress, (state, held, before): Variant| {
        (is_active(state) && row.state.is_waiting()).then(|| before.unwrap_or(0).max(held))
    };
    same(released, &jobs(&greatest));
    // Their relay dies.
    table.system.sql("UPDATE promised_jobs SET leased_until = now()").await;
    let leased = table.ledger.outbox_lease(u16::MAX).await.unwrap();
    let left = |row: &Progress, one: Variant| greatest(row, one).or(one.2).filter(|_| row.state.is_waiting());
    same(leased.jobs().iter().copied(), &jobs(&left));
    let held = table.rows.iter().filter(|(_, _, (state, ..))| !is_active(*state)).count();
    assert_eq!(table.system.count("SELECT count(*) FROM held_jobs").await, i64::try_from(held).unwrap());
}
