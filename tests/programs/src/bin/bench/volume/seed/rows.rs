//! Deliveries with their events and some attempts.

use std::{ops::Range, time::Instant};

use uuid::Uuid;

use super::MILLIS_A_DAY;
use crate::environment::Environment;

/// One in this many deliveries has an attempt row, if attempted at all.
const DELIVERIES_PER_ATTEMPT_ROW: u32 = 4;
/// The event type by the number `n`. Four types do not occur.
const EVENT_TYPE: &str = "CASE WHEN n % 100 < 90 THEN 'quote.closed' WHEN n % 100 < 99 THEN 'quote.accepted' \
     ELSE 'return_note.created' END";

/// The state of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nearly all succeeded. Some were dropped, few were cancelled.
    Past,
    /// All succeeded except each 10,000th, which waits for a retry.
    PastButSome,
    /// Half are held and were never attempted, half wait for a retry.
    Waiting,
    /// All are held and were never attempted.
    Held,
    /// All wait for their last retry, due in hours.
    Retrying,
    /// All were dropped.
    Dropped,
}

/// Deliveries of one webhook, spread evenly over a span in Unix milliseconds.
pub(super) struct Rows {
    pub(super) tenant: Uuid,
    pub(super) webhook: Uuid,
    pub(super) kind: Kind,
    pub(super) count: u64,
    pub(super) span: Range<i64>,
}

impl Rows {
    /// Writes them day by day.
    pub(super) async fn write(&self, environment: &Environment<'_>, began: Instant) {
        let mut day = self.span.clone();
        while day.start < self.span.end {
            day.end = ((day.start / MILLIS_A_DAY + 1) * MILLIS_A_DAY).min(self.span.end);
            environment.sql(&self.of_day(&day)).await;
            println!(
                "  {:?}: {} of {} deliveries, {:.0} s in all",
                self.kind,
                self.before(day.end),
                self.count,
                began.elapsed().as_secs_f64()
            );
            day.start = day.end;
        }
        if matches!(self.kind, Kind::Waiting | Kind::Held) {
            let webhook = self.webhook;
            environment
                .sql(&format!(
                    "INSERT INTO held_jobs (webhook_id, delivery_id) \
                     SELECT webhook_id, id FROM deliveries WHERE webhook_id = '{webhook}' AND state = 'pending'"
                ))
                .await;
        }
    }

    /// How many deliveries come before a moment of the span.
    fn before(&self, moment: i64) -> i64 {
        let (count, span) = (i128::from(self.count), i128::from(self.span.end - self.span.start));
        i64::try_from(count * i128::from(moment - self.span.start) / span).expect("it is at most the count")
    }

    /// Writes a day. Ids are as the service makes them: milliseconds, then a hash.
    fn of_day(&self, day: &Range<i64>) -> String {
        let Self { tenant, webhook, kind, count, .. } = self;
        let (first, beyond) = (self.before(day.start), self.before(day.end));
        let (from, length, rows) = (day.start, day.end - day.start, (beyond - first).max(1));
        let (state, attempts) = kind.state_and_attempts();
        format!(
            "WITH past AS MATERIALIZED ( \
               SELECT n, at, hash, event_type, state, attempts, \
                      (lpad(to_hex(ms), 12, '0') || '8' || left(hash, 3) || '8' || substr(hash, 4, 15))::uuid AS id \
               FROM (SELECT n, ms, to_timestamp(ms / 1000.0) AS at, md5('{webhook}{kind:?}' || n) AS hash, \
                            {EVENT_TYPE} AS event_type, {state} AS state, {attempts}::smallint AS attempts \
                     FROM (SELECT n, {from}::bigint + (n - {first}::bigint) * {length}::bigint / {rows} AS ms \
                           FROM generate_series({first}::bigint, {beyond}::bigint - 1) AS n) AS numbered) AS made \
             ), event AS ( \
               INSERT INTO events (occurred_at, id, tenant_id, event_type, body, received_at) \
               SELECT at, hash::uuid, '{tenant}', event_type, convert_to('{{\"number\":' || n || '}}', 'UTF8'), at FROM past \
             ), attempt AS ( \
               INSERT INTO attempts (delivery_id, attempt, url, signed_at, started_at, duration_us, outcome, status, response_body) \
               SELECT id, attempts, 'https://receiver.example/', date_trunc('second', at), at, 1000, \
                      CASE state WHEN 'succeeded' THEN 'success' ELSE 'status' END, \
                      CASE state WHEN 'succeeded' THEN 200 ELSE 500 END, '' \
               FROM past WHERE n % {DELIVERIES_PER_ATTEMPT_ROW} = 0 AND attempts > 0 \
             ) \
             INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at, first_failed_at, \
                                     next_attempt_at) \
             SELECT id, '{webhook}', hash::uuid, event_type, state, attempts, at, \
                    CASE state WHEN 'retrying' THEN now() - interval '4 hours' WHEN 'dropped' THEN at END, \
                    CASE state WHEN 'retrying' THEN now() + interval '6 hours' + interval '2 hours' * n / {count} END \
             FROM past"
        )
    }
}

impl Kind {
    /// State and attempts, as SQL expressions of the number `n`.
    const fn state_and_attempts(self) -> (&'static str, &'static str) {
        match self {
            Self::Past => (
                "CASE WHEN n % 1000 = 500 THEN 'dropped' WHEN n % 10000 = 300 THEN 'cancelled' ELSE 'succeeded' END",
                "CASE WHEN n % 1000 = 500 THEN 7 ELSE 1 END",
            ),
            Self::PastButSome => (
                "CASE WHEN n % 10000 = 0 THEN 'retrying' ELSE 'succeeded' END",
                "CASE WHEN n % 10000 = 0 THEN 6 ELSE 1 END",
            ),
            Self::Waiting => {
                ("CASE n % 2 WHEN 0 THEN 'pending' ELSE 'retrying' END", "CASE n % 2 WHEN 0 THEN 0 ELSE 6 END")
            }
            Self::Held => ("'pending'", "0"),
            Self::Retrying => ("'retrying'", "6"),
            Self::Dropped => ("'dropped'", "7"),
        }
    }
}
