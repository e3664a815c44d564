//! The search of a log for what was asked for, newest first, in steps.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    Delivery, DeliveryFilter, DeliveryPage, LastAttempt, ListedDelivery,
    query::{LogRow, LogStep, Sequences},
};
use crate::{
    batch::plan_with_values,
    connect::pool::Ledger,
    error::LedgerError,
    lists::Page,
    statement::sql,
    webhook::{Existence, OwnWebhook},
};

/// The deliveries whose bodies the first statement searches: of 256 KiB each, in a tenth of a second. Each that is quick
/// doubles the next one, up to the most.
const FIRST_BODIES: usize = 50;
const MOST_BODIES: usize = 400;
const QUICK_STEP: Duration = Duration::from_millis(50);
/// The most events of one id that are looked at for their times, of all tenants together.
const MAX_READ_EVENTS: i64 = 1_000;

const FIND_TIMES: &str = "SELECT min(occurred_at) FILTER (WHERE tenant_id = $2), \
       max(occurred_at) FILTER (WHERE tenant_id = $2), count(*) >= $3 \
     FROM (SELECT occurred_at, tenant_id FROM events WHERE id = $1 LIMIT $3) AS looked_at";

/// The last attempts of deliveries with ids from $2 to $3.
const LAST_ATTEMPTS: &str = "SELECT a.* FROM unnest($1) AS listed(id) CROSS JOIN LATERAL ( \
       SELECT delivery_id, outcome, status, error, started_at FROM attempts \
       WHERE delivery_id = listed.id AND delivery_id >= $2 AND delivery_id <= $3 ORDER BY attempt DESC LIMIT 1 \
     ) AS a";

/// The places, from 1, of the events of tenant $4 whose bodies contain $5. Their times are from $6 to $7.
const FIND_TEXT: &str = "SELECT listed.place FROM unnest($1, $2, $3) WITH ORDINALITY \
       AS listed(occurred_at, id, event_type, place) CROSS JOIN LATERAL ( \
       SELECT body FROM events AS e WHERE e.occurred_at = listed.occurred_at AND e.id = listed.id \
         AND e.tenant_id = $4 AND e.event_type = listed.event_type AND e.occurred_at >= $6 AND e.occurred_at <= $7 \
       LIMIT 1 \
     ) AS e WHERE position($5 IN e.body) > 0";

/// What is read, and what of it is shown.
struct Search {
    sequences: Sequences,
    /// Of the states in the ledger, those that may be shown as one that is asked for. Empty: all.
    states: Vec<&'static str>,
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
        let (mut found, end) = (Vec::new(), DeliveryPage { deliveries: Vec::new(), next: None });
        let Some(Search { mut sequences, states }) = search(webhooks, &filter.states) else { return Ok(end) };
        let (first, mut before) = self.bounds(tenant, filter, page.after).await?;
        let mut bodies = FIRST_BODIES;
        let own: HashMap<_, _> = webhooks.iter().map(|own| (own.id().as_uuid(), own)).collect();
        while sequences.len() > 0 && first < before {
            let needed = limit + 1 - found.len();
            // One statement, so that rows that come or go meanwhile are neither read twice nor skipped.
            let step = LogStep::new(&sequences, before, &states, filter, needed);
            let rows: Vec<LogRow> = self.run("delivery_list", async |conn| (&step).load(conn).await).await?;
            let ends = ends(&rows, sequences.len(), &step);
            // Below the first end, a sequence may have rows that were not read.
            let read_to = ends.iter().flatten().max().copied();
            let shown = |row: LogRow| {
                let webhook = own.get(&sequences.webhook(row.place)?)?;
                let delivery = row.delivery?.shown(webhook.existence);
                let is_wanted = filter.states.is_empty() || filter.states.contains(&delivery.state);
                let is_read = delivery.id.as_uuid() >= first && read_to.is_none_or(|end| delivery.id.as_uuid() >= end);
                (is_wanted && is_read).then_some((webhook.id(), delivery))
            };
            let mut candidates: Vec<_> = rows.into_iter().filter_map(shown).collect();
            candidates.sort_by_key(|(_, delivery)| Reverse(delivery.id));
            let mut rest = &candidates[..];
            while !rest.is_empty() {
                let at_once = if filter.contains.is_some() { bodies } else { needed };
                let (chunk, later) = rest.split_at(at_once.min(rest.len()));
                let asked = Instant::now();
                found.extend(self.matching(tenant, filter, chunk).await?);
                // Of small bodies, more are searched at once.
                if asked.elapsed() < QUICK_STEP {
                    bodies = (bodies * 2).min(MOST_BODIES);
                }
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
            let Some(read_to) = read_to.filter(|read_to| *read_to > first) else { break };
            if began.elapsed() >= budget {
                return Ok(DeliveryPage { deliveries: found, next: Some(read_to.into()) });
            }
            before = read_to;
            sequences.retain(|place| ends.get(place - 1).is_some_and(Option::is_some));
        }
        Ok(DeliveryPage { deliveries: found, ..end })
    }

    /// The last attempts of those of the deliveries that had one, by delivery.
    pub async fn last_attempts(
        &self,
        deliveries: &[DeliveryId],
    ) -> Result<Vec<(DeliveryId, LastAttempt)>, LedgerError> {
        let ids: Vec<Uuid> = deliveries.iter().map(|id| id.as_uuid()).collect();
        let Some((first, last)) = ids.iter().min().zip(ids.iter().max()) else { return Ok(Vec::new()) };
        let find = sql(LAST_ATTEMPTS).bind(ids.clone()).bind(*first).bind(*last);
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

    /// Those of the deliveries that match what their rows do not tell.
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
        let attempted = candidates.iter().filter(|(_, delivery)| delivery.attempts > 0);
        let attempted: Vec<_> = attempted.map(|(_, delivery)| delivery.id).collect();
        let mut attempts: HashMap<_, _> = self.last_attempts(&attempted).await?.into_iter().collect();
        let listed = candidates.into_iter().map(|(webhook, delivery)| {
            let last_attempt = attempts.remove(&delivery.id);
            ListedDelivery { webhook, delivery, last_attempt }
        });
        let is_wanted = |listed: &ListedDelivery| {
            filter.outcome.is_none() || listed.last_attempt.as_ref().map(|last| last.outcome) == filter.outcome
        };
        Ok(listed.filter(is_wanted).collect())
    }

    /// Those of the deliveries whose bodies contain a text. A body that has expired contains none.
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

/// The last id that was read of each sequence that may have further rows.
fn ends(rows: &[LogRow], sequences: usize, step: &LogStep<'_>) -> Vec<Option<Uuid>> {
    let mut read = vec![(0, None, false); sequences];
    for row in rows {
        if let Some((count, last, is_end)) = row.place.checked_sub(1).and_then(|place| read.get_mut(place)) {
            (*count, *last, *is_end) = (*count + 1, Some(row.id), *is_end || row.is_end);
        }
    }
    read.into_iter().map(|(count, last, is_end)| last.filter(|_| is_end || step.is_cut(count))).collect()
}

/// Where to search, and which states to match there. A deleted webhook's waiting deliveries count as cancelled, whether
/// or not they are marked so yet. `None` when nothing can match.
fn search(webhooks: &[OwnWebhook], asked: &[DeliveryState]) -> Option<Search> {
    use DeliveryState::{Cancelled, Pending, Retrying, Succeeded};
    let only_waiting = !asked.is_empty() && asked.iter().all(|state| state.is_waiting());
    let has = |own: &&OwnWebhook| !only_waiting || own.existence == Existence::Registered;
    let webhooks: Vec<_> = webhooks.iter().filter(has).collect();
    if webhooks.is_empty() {
        return None;
    }
    let ids = webhooks.iter().map(|own| own.id().as_uuid());
    let mut states: Vec<_> = DeliveryState::ALL.into_iter().filter(|state| asked.contains(state)).collect();
    let is_cancelling = webhooks.iter().any(|own| own.existence == Existence::Cancelling);
    if asked.contains(&Cancelled) && is_cancelling {
        states.extend([Pending, Retrying].into_iter().filter(|state| !asked.contains(state)));
    }
    let names = states.iter().map(|state| state.as_str()).collect();
    // `unsuccessful_deliveries` has no successful ones, and not all that are pending.
    if states.is_empty() || states.iter().any(|state| [Pending, Succeeded].contains(state)) {
        return Some(Search { sequences: Sequences::Logs(ids.collect()), states: names });
    }
    let of_each = ids.flat_map(|id| states.iter().map(move |state| (id, state.as_str()))).collect();
    Some(Search { sequences: Sequences::Unsuccessful(of_each), states: Vec::new() })
}

struct LastAttemptRow {
    delivery_id: DeliveryId,
    attempt: LastAttempt,
}

crate::statement::rows! {
    LastAttemptRow { delivery_id; attempt }
    LastAttempt { outcome, status, error, started_at }
}
