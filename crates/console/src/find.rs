//! What became of an event, and which deliveries have a text.

use std::collections::HashMap;

use domain::{EventId, WebhookId};
use ledger::{EventAtWebhook, FoundEvent, FoundEvents, ListedDelivery};
use maud::{Markup, html};
use time::OffsetDateTime;

use crate::{
    Frame, Paths,
    deliveries::{attempts, badge, last, next},
    layout,
    text::{number, query, sentence, shortened},
    times::{full, moment, relative},
};

/// How many webhooks are shown of all the events together.
const MAX_SHOWN_WEBHOOKS: usize = 80;

/// What an id led to.
#[derive(Clone, Debug)]
pub enum SearchResult {
    /// Nothing was asked for.
    Nothing,
    /// It cannot be searched for. The reason.
    Fault(String),
    /// Deliveries with this text in their bodies.
    Deliveries(FoundDeliveries),
    /// Events, and what became of them. Why there is none, for each webhook, comes in words.
    Events(EventId, FoundEvents),
}

/// Deliveries with a text in their bodies, a page of them.
#[derive(Clone, Debug)]
pub struct FoundDeliveries {
    /// Newest event first.
    pub deliveries: Vec<ListedDelivery>,
    /// The names of their webhooks.
    pub names: HashMap<WebhookId, String>,
    /// Whether this page begins below the newest delivery.
    pub is_later: bool,
    /// Why the text, if it is an id, leads to nothing else.
    pub unknown: Option<String>,
    /// The cursor of the next page, and the time down to which events were searched. `None` if all were.
    pub next: Option<(String, OffsetDateTime)>,
}

/// The page.
pub struct Find<'a> {
    /// What was asked for.
    pub id: &'a str,
    /// What was found.
    pub found: SearchResult,
    /// Says why a webhook has no delivery.
    pub explain: fn(ledger::Absence) -> &'static str,
}

impl Find<'_> {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            h1 { "Find an event or a delivery" }
            form.search method="get" role="search" aria-label="Ids and texts" {
                input type="search" name="id" value=(self.id) aria-label="An id or a text" placeholder="An id, or a text such as Q-2026-0117" required maxlength="256" autocomplete="off" spellcheck="false" autofocus[self.id.is_empty()];
                button.primary { "Find" }
            }
            @match &self.found {
                SearchResult::Nothing => p.note { "Paste the id of an event, as the upstream service gave it, or of a delivery, as the receiver saw it in " code { "X-Service-Webhook-Id" } ". A webhook's id works too. Any other text is searched for in the bodies that were sent: all its characters, as they are there, without blanks around it. A character that JSON escapes, such as a quotation mark, is not found." },
                SearchResult::Fault(why) => p.fault role="alert" { (sentence(why)) },
                SearchResult::Deliveries(found) => (self.deliveries(found, frame)),
                SearchResult::Events(id, found) => (self.events(*id, found, frame)),
            }
        };
        layout::page(frame, "Find", &[("Webhooks", Paths::HOME.to_owned())], &content)
    }

    fn deliveries(&self, found: &FoundDeliveries, frame: &Frame) -> Markup {
        let is_all = found.deliveries.is_empty() && found.next.is_none() && !found.is_later;
        html! {
            @match &found.unknown {
                Some(why) if is_all => (unknown(why)),
                _ => section {
                    h2 { "Deliveries with this text" }
                    @if found.deliveries.is_empty() {
                        p.nothing { @if is_all { "No body that is kept has this text." } @else { "None in this part of the log." } }
                    } @else {
                        table.log {
                            thead { tr { th { "State" } th { "Event" } th { "Fired" } th { "Webhook" } th { "Last attempt" } } }
                            tbody { @for listed in &found.deliveries { (row(listed, &found.names, frame)) } }
                        }
                    }
                    @if let Some((cursor, until)) = &found.next {
                        p.note { "Searched back to " (full(*until)) ". " }
                        nav.pager { a.button href={ "?" (query([("id", self.id), ("cursor", cursor)])) } rel="next" { "Search earlier" } }
                    }
                }
            }
        }
    }

    fn events(&self, id: EventId, found: &FoundEvents, frame: &Frame) -> Markup {
        html! {
            div #events data-live="" {
                @for event in &found.events { (self.event(id, event, MAX_SHOWN_WEBHOOKS / found.events.len().max(1), frame)) }
            }
            @if !found.is_complete { p.note { "More events have this id; these are the newest." } }
        }
    }

    /// An event, at `most` so many webhooks: those that have it first, and deleted ones last.
    fn event(&self, id: EventId, event: &FoundEvent, most: usize, frame: &Frame) -> Markup {
        let mut webhooks: Vec<_> = event.webhooks.iter().collect();
        webhooks.sort_by_key(|at| (at.delivery.is_err(), at.is_deleted));
        let hidden = webhooks.len().saturating_sub(most);
        html! {
            section {
                h2 { code { (event.event_type) } }
                dl.facts {
                    div { dt { "Event id" } dd { code { (id) } } }
                    div { dt { "Fired" } dd { (full(event.occurred_at)) " · " (relative(event.occurred_at, frame.now)) } }
                    div { dt { "Received" } dd { (full(event.received_at)) } }
                }
                table.log.outcomes {
                    thead { tr { th { "Webhook" } th { "Outcome" } th.number { "Attempts" } th { "Next attempt" } } }
                    tbody { @for at in webhooks.into_iter().take(most) { (self.at_webhook(at, frame)) } }
                }
                @if hidden > 0 { p.note { (number(hidden as u64)) " more of your webhooks, deleted ones included, are left out." } }
            }
        }
    }

    fn at_webhook(&self, at: &EventAtWebhook, frame: &Frame) -> Markup {
        html! {
            tr {
                td { a href=(Paths::webhook(at.webhook)) { (shortened(&at.name)) } @if at.is_deleted { " " span.tag { "deleted" } } }
                @match &at.delivery {
                    Ok(delivery) => {
                        td { a href=(Paths::delivery(at.webhook, delivery.id)) { (badge(delivery.state)) } @if delivery.is_test { " " span.tag { "test" } } }
                        td.number { (attempts(delivery.attempts)) }
                        (next(delivery, at.is_paused, frame))
                    }
                    Err(absence) => td.reason colspan="3" { ((self.explain)(*absence)) },
                }
            }
        }
    }
}

fn row(listed: &ListedDelivery, names: &HashMap<WebhookId, String>, frame: &Frame) -> Markup {
    let ListedDelivery { webhook, delivery, last_attempt } = listed;
    html! {
        tr {
            td { (badge(delivery.state)) }
            td {
                a href=(Paths::delivery(*webhook, delivery.id)) { code { (delivery.event_type) } }
                @if delivery.is_test { " " span.tag { "test" } }
            }
            td { (relative(delivery.occurred_at(), frame.now)) " " span.exact { (moment(delivery.occurred_at(), frame.now)) } }
            td { @if let Some(name) = names.get(webhook) { a href=(Paths::webhook(*webhook)) { (shortened(name)) } } }
            (last(last_attempt.as_ref()))
        }
    }
}

/// Why nothing is known of an id: what it can have, one below the other.
fn unknown(why: &str) -> Markup {
    let (what, reasons) = why.split_once(": ").unwrap_or((why, ""));
    html! {
        section {
            h2 { "Nothing found" }
            p { (sentence(what)) @if !reasons.is_empty() { " One of these is the reason:" } }
            @if !reasons.is_empty() { ul.steps { @for reason in reasons.split("; or ") { li { (sentence(reason)) } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{DeliveryState, EventType};
    use ledger::{Absence, Delivery};
    use uuid::Uuid;

    use super::*;
    use crate::health::tests::{NOW, frame};

    fn at(number: u128, delivery: Result<Delivery, Absence>, is_deleted: bool) -> EventAtWebhook {
        let name = "\u{61c}".repeat(255);
        EventAtWebhook { webhook: Uuid::from_u128(number).into(), name, is_deleted, is_paused: !is_deleted, delivery }
    }

    #[test]
    fn the_largest_page_is_at_most_100_kb_and_shows_who_has_the_event_first() {
        const LONGEST_REASON: &str = "The webhook is subscribed to events of this type now, and was not sent this one: it was \
                               subscribed later, or it was registered in the moment in which the event came.";
        let delivery = Delivery {
            id: "0192f0c1-0000-8000-8000-0000000000ab".parse().unwrap(),
            event: Uuid::nil().into(),
            event_type: EventType::DeliveryNoteMarkedDelivered,
            is_test: true,
            state: DeliveryState::Retrying,
            attempts: 7,
            created_at: NOW,
            first_failed_at: None,
            next_attempt_at: Some(NOW),
        };
        for (events, deliveries, hidden) in
            [(1, 100, "1\u{202f}020 more"), (10, 100, "1\u{202f}092 more"), (1, 0, "920 more")]
        {
            let event = FoundEvent {
                event_type: EventType::DeliveryNoteMarkedDelivered,
                occurred_at: NOW,
                received_at: NOW,
                webhooks: (0..1_000)
                    .map(|number| at(number, Err(Absence::SubscribedLater), number % 2 == 0))
                    .chain((1_000..1_000 + deliveries).map(|number| at(number, Ok(delivery.clone()), true)))
                    .collect(),
            };
            let found = FoundEvents { events: vec![event; events], is_complete: false };
            let page =
                Find { id: "0", found: SearchResult::Events(Uuid::nil().into(), found), explain: |_| LONGEST_REASON };
            let text = page.render(&frame("u", "t"));
            assert!(text.len() < 100_000, "{} bytes", text.len());
            assert!(text.contains(hidden) && text.contains(LONGEST_REASON) == (deliveries == 0), "{text}");
        }
        for (is_paused, shown) in [(true, ">held<"), (false, ">now<")] {
            let held = EventAtWebhook { is_paused, ..at(1, Ok(delivery.clone()), false) };
            let event = FoundEvent {
                event_type: EventType::QuoteClosed,
                occurred_at: NOW,
                received_at: NOW,
                webhooks: vec![held],
            };
            let found = FoundEvents { events: vec![event], is_complete: true };
            let page = Find { id: "0", found: SearchResult::Events(Uuid::nil().into(), found), explain: |_| "" };
            let text = page.render(&frame("u", "t"));
            assert!(text.contains(shown), "{text}");
        }
    }

    #[test]
    fn each_reason_stands_on_its_own() {
        let shown =
            unknown("there is none: it is late, or lost; or it was refused: see the queue; or it is old").into_string();
        assert!(shown.contains("<p>There is none. One of these is the reason:</p>"), "{shown}");
        for reason in
            ["<li>It is late, or lost.</li>", "<li>It was refused: see the queue.</li>", "<li>It is old.</li>"]
        {
            assert!(shown.contains(reason), "{shown}");
        }
        assert!(!unknown("there is none").into_string().contains("<ul"));
    }
}
