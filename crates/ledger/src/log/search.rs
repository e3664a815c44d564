//! The search of a log for what was asked for, newest first, in steps.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    Delivery, DeliveryFilter, DeliveryPage, LastAttempt, ListedDelivery,
    event::MAX_READ_EVENTS,
    query::{LogRow, LogStep, Sequence, States},
};
use crate::{
    batch::plan_with_values,
    connect::pool::Ledger,
    error::LedgerError,
    lists::Page,
    statement::sql,
    webhook::{Existence, OwnWebhook},
};

/// The deliveries whose bodies one statement searches: the first one, and at most. Those of 256 KiB each take some tenths
/// of a second. After a quick one, the next one has twice as many.
const FIRST_BODIES: usize = 50;
const MAX_BODIES: usize = 150;
const QUICK_STEP: Duration = Duration::from_millis(50);
/// The deliveries whose last attempts one statement looks up, at least.
const MIN_LOOKUPS: usize = 200;
/// The window of the first step over many logs: a day.
const FIRST_WINDOW_MILLIS: u64 = 86_400_000;

/// The earliest and the latest time of tenant $2's events of id $1, and whether some of that id were not looked at.
const FIND_TIMES: &str = "SELECT min(occurred_at) FILTER (WHERE tenant_id = $2), \
       max(occurred_at) FILTER (WHERE tenant_id = $2), count(*) >= $3 \
     FROM (SELECT occurred_at, tenant_id FROM events WHERE id = $1 LIMIT $3) AS looked_at";

/// The last attempts of the deliveries $1, with ids from $3 to $4, among as many as $2 says: a later one may come meanwhile.
const LAST_ATTEMPTS: &str = "SELECT a.* FROM unnest($1, $2) AS listed(id, attempts) CROSS JOIN LATERAL ( \
       SELECT delivery_id, outcome, status, error, started_at FROM attempts \
       WHERE delivery_id = listed.id AND attempt <= listed.attempts AND delivery_id >= $3 AND delivery_id <= $4 \
       ORDER BY attempt DESC LIMIT 1 \
     ) AS a";

/// The places, from 1, of the events of tenant $4 whose bodies contain $5. Their times are from $6 to $7.
const FIND_TEXT: &str = "SELECT listed.place FROM unnest($1, $2, $3) WITH ORDINALITY \
       AS listed(occurred_at, id, event_type, place) CROSS JOIN LATERAL ( \
       SELECT body FROM events AS e WHERE e.occurred_at = listed.occurred_at AND e.id = listed.id \
         AND e.tenant_id = $4 AND e.event_type = listed.event_type AND e.occurred_at >= $6 AND e.occurred_at <= $7 \
       LIMIT 1 \
     ) AS e WHERE position($5 IN e.body) > 0";

/// A search under way.
struct Search {
    states: States,
    /// The webhooks, and how far each was read.
    sequences: Vec<Sequence>,
    /// Matching rows, newest first. Above the frontier, none is missing.
    rows: BTreeMap<Reverse<DeliveryId>, (WebhookId, Delivery)>,
    /// Where the search began, or now, and the newest row that was read: their times in Unix milliseconds.
    top: u64,
    newest: Option<u64>,
    /// The span that a step over many logs reads, in milliseconds.
    window: u64,
}

impl Ledger {
    /// Lists deliveries of a tenant's webhooks, newest event first. The search ends after about `budget`, so a page may be
    /// short, or empty. It is the last one only if its `next` is `None`.
    pub async fn delivery_list(
        &self,
        (tenant, webhooks): (TenantId, &[OwnWebhook]),
        filter: &DeliveryFilter,
        page: Page<DeliveryId>,
        budget: Duration,
    ) -> Result<DeliveryPage, LedgerError> {
        let (began, limit) = (Instant::now(), usize::from(page.limit));
        let (mut found, mut bodies) = (Vec::new(), FIRST_BODIES);
        let (first, before) = self.bounds(tenant, filter, page.after).await?;
        // No event fires more than a day ahead. Clocks may differ.
        let before = before.min(DeliveryId::bound_at(OffsetDateTime::now_utc() + 2 * time::Duration::DAY));
        let mut search = Search::new(webhooks, &filter.states, before);
        let own: HashMap<_, _> = webhooks.iter().map(|own| (own.id().as_uuid(), *own)).collect();
        while search.frontier().is_some_and(|frontier| frontier > first) {
            let needed = limit + 1 - found.len();
            // Texts and outcomes are looked up for this number of rows by one statement.
            let looked_up = match (&filter.contains, filter.outcome) {
                (Some(_), _) => needed.max(MAX_BODIES),
                (None, Some(_)) => needed.max(MIN_LOOKUPS),
                (None, None) => needed,
            };
            let (chosen, low) = search.blocking(first);
            // One statement, so that rows that come or go meanwhile are neither read twice nor skipped.
            let step = LogStep::new((&chosen, low), &search.states, filter, looked_up);
            let asked = Instant::now();
            let rows: Vec<LogRow> = self.run("delivery_list", async |conn| (&step).load(conn).await).await?;
            let is_quick = asked.elapsed() < QUICK_STEP;
            let ends = ends(&rows, chosen.len(), |count| step.is_cut(count));
            search.take((&chosen, low), &ends, rows, |webhook, delivery| {
                let delivery = delivery.shown(own.get(&webhook)?.existence);
                let is_wanted = filter.states.is_empty() || filter.states.contains(&delivery.state);
                (is_wanted && delivery.id.as_uuid() >= first).then_some(delivery)
            });
            search.widen(low, is_quick);
            let complete = search.complete();
            let mut rest = &complete[..];
            while !rest.is_empty() {
                let at_once = if filter.contains.is_some() { bodies } else { looked_up };
                let (chunk, later) = rest.split_at(at_once.min(rest.len()));
                let asked = Instant::now();
                found.extend(self.matching(tenant, filter, chunk).await?);
                bodies = if asked.elapsed() < QUICK_STEP { (bodies * 2).min(MAX_BODIES) } else { FIRST_BODIES };
                if found.len() > limit {
                    found.truncate(limit);
                    let next = found.last().map(|last: &ListedDelivery| last.delivery.id);
                    return Ok(DeliveryPage { deliveries: found, next });
                }
                if !later.is_empty() && began.elapsed() >= budget {
                    let next = chunk.last().map(|(_, delivery)| delivery.id);
                    return Ok(DeliveryPage { deliveries: found, next });
                }
                rest = later;
            }
            if began.elapsed() >= budget {
                let next = search.frontier().filter(|frontier| *frontier > first).map(DeliveryId::from);
                return Ok(DeliveryPage { deliveries: found, next });
            }
        }
        Ok(DeliveryPage { deliveries: found, next: None })
    }

    /// The last attempts of those of the deliveries that had one, by delivery.
    pub async fn last_attempts<'a>(
        &self,
        deliveries: impl Iterator<Item = &'a Delivery> + Send,
    ) -> Result<HashMap<DeliveryId, LastAttempt>, LedgerError> {
        let attempted = deliveries.filter(|delivery| delivery.attempts > 0);
        let made = |delivery: &Delivery| i16::try_from(delivery.attempts).unwrap_or(i16::MAX);
        let (ids, made): (Vec<Uuid>, Vec<i16>) = attempted.map(|one| (one.id.as_uuid(), made(one))).unzip();
        let Some((first, last)) = ids.iter().copied().min().zip(ids.iter().copied().max()) else {
            return Ok(HashMap::new());
        };
        let find = sql(LAST_ATTEMPTS).bind(ids).bind(made).bind(first).bind(last);
        let rows: Vec<LastAttemptRow> = self
            .transaction("last_attempts", async |conn| {
                plan_with_values(conn).await?;
                find.load_known(conn).await
            })
            .await?;
        Ok(rows.into_iter().map(|row| (row.delivery_id, row.attempt)).collect())
    }

    /// The ids to look at: from one of them, and below the other.
    async fn bounds(
        &self,
        tenant: TenantId,
        filter: &DeliveryFilter,
        after: Option<DeliveryId>,
    ) -> Result<(Uuid, Uuid), LedgerError> {
        let mut first = filter.occurred_after.map_or(Uuid::nil(), DeliveryId::bound_at);
        let mut before = filter.occurred_before.map_or(Uuid::max(), DeliveryId::bound_before);
        before = before.min(after.map_or(Uuid::max(), DeliveryId::as_uuid));
        if let Some(event) = filter.event
            && let Some((earliest, latest)) = self.event_times(tenant, event).await?
        {
            first = first.max(DeliveryId::bound_at(earliest));
            before = before.min(DeliveryId::bound_at(latest + time::Duration::MILLISECOND));
        }
        Ok((first, before))
    }

    /// The earliest and the latest time of a tenant's events of an id. `None` when they are not known: the bodies have
    /// expired, or very many events have this id.
    async fn event_times(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<(OffsetDateTime, OffsetDateTime)>, LedgerError> {
        let find = sql(FIND_TIMES).bind(event.as_uuid()).bind(tenant.as_uuid()).bind(MAX_READ_EVENTS);
        let (earliest, latest, is_cut): (Option<OffsetDateTime>, Option<OffsetDateTime>, bool) =
            self.run("event_times", async |conn| find.value(conn).await).await?;
        Ok(earliest.zip(latest).filter(|_| !is_cut))
    }

    /// Keeps the deliveries that match the filter's text and outcome, which their rows do not show.
    async fn matching(
        &self,
        tenant: TenantId,
        filter: &DeliveryFilter,
        candidates: &[(WebhookId, Delivery)],
    ) -> Result<Vec<ListedDelivery>, LedgerError> {
        let candidates = match &filter.contains {
            Some(text) => self.events_containing(tenant, text, candidates).await?,
            None => candidates.to_vec(),
        };
        let mut attempts = self.last_attempts(candidates.iter().map(|(_, delivery)| delivery)).await?;
        let listed = candidates.into_iter().map(|(webhook, delivery)| {
            let last_attempt = attempts.remove(&delivery.id);
            ListedDelivery { webhook, delivery, last_attempt }
        });
        let is_wanted = |listed: &ListedDelivery| {
            filter.outcome.is_none() || listed.last_attempt.as_ref().map(|last| last.outcome) == filter.outcome
        };
        Ok(listed.filter(is_wanted).collect())
    }

    /// Keeps the deliveries with a text in their body. A body that has expired contains none.
    async fn events_containing(
        &self,
        tenant: TenantId,
        text: &str,
        candidates: &[(WebhookId, Delivery)],
    ) -> Result<Vec<(WebhookId, Delivery)>, LedgerError> {
        let key =
            |delivery: &Delivery| (delivery.occurred_at(), delivery.event.as_uuid(), delivery.event_type.as_str());
        let mut events: Vec<_> = candidates.iter().map(|(_, delivery)| key(delivery)).collect();
        events.sort_unstable();
        events.dedup();
        let ([(first, ..), ..], [.., (last, ..)]) = (&events[..], &events[..]) else { return Ok(Vec::new()) };
        let find = sql(FIND_TEXT)
            .bind(events.iter().map(|(at, ..)| *at).collect::<Vec<_>>())
            .bind(events.iter().map(|(_, id, _)| *id).collect::<Vec<_>>())
            .bind(events.iter().map(|(.., event_type)| (*event_type).to_owned()).collect::<Vec<_>>())
            .bind(tenant.as_uuid())
            .bind(text.as_bytes().to_vec())
            .bind(*first)
            .bind(*last);
        let places: Vec<i64> = self
            .transaction("events_containing", async |conn| {
                plan_with_values(conn).await?;
                find.values(conn).await
            })
            .await?;
        let found: HashSet<_> =
            places.into_iter().filter_map(|place| events.get(usize::try_from(place).ok()? - 1)).collect();
        Ok(candidates.iter().filter(|(_, delivery)| found.contains(&key(delivery))).cloned().collect())
    }
}

impl Search {
    /// A search of these webhooks below an id. A deleted webhook's waiting deliveries count as cancelled, whether or not
    /// they are marked so yet.
    fn new(webhooks: &[OwnWebhook], asked: &[DeliveryState], before: Uuid) -> Self {
        use DeliveryState::{Cancelled, Pending, Retrying, Succeeded};
        let only_waiting = !asked.is_empty() && asked.iter().all(|state| state.is_waiting());
        let webhooks = webhooks.iter().filter(|own| !only_waiting || own.existence == Existence::Registered);
        let is_cancelling = webhooks.clone().any(|own| own.existence == Existence::Cancelling);
        let widened = asked.contains(&Cancelled) && is_cancelling;
        let is_read = |state: &DeliveryState| asked.contains(state) || widened && [Pending, Retrying].contains(state);
        let states: Vec<_> = DeliveryState::ALL.into_iter().filter(is_read).collect();
        let names = states.iter().map(|state| state.as_str()).collect();
        // `unsuccessful_deliveries` has no successful ones, and not all that are pending.
        let states = match states.is_empty() || states.iter().any(|state| [Pending, Succeeded].contains(state)) {
            true => States::OfLogs(names),
            false => States::Unsuccessful(names),
        };
        let sequences = webhooks.map(|own| Sequence { webhook: own.id().as_uuid(), before }).collect();
        let top = DeliveryId::from(before.min(DeliveryId::bound_at(OffsetDateTime::now_utc()))).unix_millis();
        Self { states, sequences, rows: BTreeMap::new(), top, newest: None, window: FIRST_WINDOW_MILLIS }
    }

    /// The id down to which every webhook was read. `None` if there is none.
    fn frontier(&self) -> Option<Uuid> {
        self.sequences.iter().map(|sequence| sequence.before).max()
    }

    /// The webhooks to read next, and down to which id: those that keep the search from going as far again as it has come.
    /// Of many logs, a step reads a window: so the partitions of earlier days stay closed.
    fn blocking(&self, first: Uuid) -> (Vec<Sequence>, Uuid) {
        let frontier = DeliveryId::from(self.frontier().unwrap_or_default()).unix_millis();
        let span = self.newest.map_or(u64::MAX, |newest| newest.saturating_sub(frontier));
        let target = DeliveryId::bound_at_millis(frontier.saturating_sub(span));
        let low = match self.states {
            States::OfLogs(_) if self.sequences.len() > 1 => {
                DeliveryId::bound_at_millis(frontier.min(self.top).saturating_sub(self.window))
            }
            _ => Uuid::nil(),
        };
        let low = low.max(first);
        let is_chosen = |sequence: &Sequence| sequence.before >= target && sequence.before > low;
        (self.sequences.iter().copied().filter(is_chosen).collect(), low)
    }

    /// Widens the window after a step that has read all of it: a log may be empty, and days without partitions cost next to
    /// nothing. A slow step that has not makes it a day again.
    fn widen(&mut self, low: Uuid, is_quick: bool) {
        self.window = match (self.frontier() == Some(low), is_quick) {
            (true, true) => self.window.saturating_mul(8),
            (true, false) => self.window.saturating_mul(2),
            (false, true) => self.window,
            (false, false) => FIRST_WINDOW_MILLIS,
        };
    }

    /// Takes the rows of a step down to `low`, and of each webhook that was read the last id, if it may have further ones.
    fn take(
        &mut self,
        (read, low): (&[Sequence], Uuid),
        ends: &[Option<Uuid>],
        rows: Vec<LogRow>,
        shown: impl Fn(Uuid, Delivery) -> Option<Delivery>,
    ) {
        let newest = rows.iter().map(|row| DeliveryId::from(row.id).unix_millis()).max();
        self.newest = self.newest.or(newest);
        for row in rows {
            let webhook = row.place.checked_sub(1).and_then(|place| read.get(place)).map(|sequence| sequence.webhook);
            if let Some(webhook) = webhook
                && let Some(delivery) = row.delivery.and_then(|delivery| shown(webhook, delivery))
            {
                self.rows.insert(Reverse(delivery.id), (webhook.into(), delivery));
            }
        }
        let ends: HashMap<_, _> = read.iter().map(|sequence| sequence.webhook).zip(ends).collect();
        for sequence in &mut self.sequences {
            if let Some(end) = ends.get(&sequence.webhook) {
                sequence.before = end.unwrap_or(low);
            }
        }
    }

    /// Removes and returns the rows from the frontier on.
    fn complete(&mut self) -> Vec<(WebhookId, Delivery)> {
        let rest = match self.frontier() {
            // The row at the frontier was read.
            Some(frontier) => {
                let below = DeliveryId::from(Uuid::from_u128(frontier.as_u128().saturating_sub(1)));
                self.rows.split_off(&Reverse(below))
            }
            None => BTreeMap::new(),
        };
        std::mem::replace(&mut self.rows, rest).into_values().collect()
    }
}

/// The last id that was read of each sequence that may have further rows.
fn ends(rows: &[LogRow], sequences: usize, is_cut: impl Fn(usize) -> bool) -> Vec<Option<Uuid>> {
    let mut read = vec![(0, None, false); sequences];
    for row in rows {
        if let Some((count, last, is_end)) = row.place.checked_sub(1).and_then(|place| read.get_mut(place)) {
            (*count, *last, *is_end) = (*count + 1, Some(row.id), *is_end || row.is_end);
        }
    }
    read.into_iter().map(|(count, last, is_end)| last.filter(|_| is_end || is_cut(count))).collect()
}

struct LastAttemptRow {
    delivery_id: DeliveryId,
    attempt: LastAttempt,
}

crate::statement::rows! {
    LastAttemptRow { delivery_id; attempt }
    LastAttempt { outcome, status, error, started_at }
}
