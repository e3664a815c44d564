//! The list of webhooks, the worst first.

use ledger::Webhook;
use maud::{Markup, html};

use crate::{
    Bar, Frame, Health, Paths, chart, health, layout,
    text::{count, number, query, shortened},
};

/// A webhook in the list, with its last 24 hours.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The webhook.
    pub webhook: Webhook,
    /// Its hours, oldest first.
    pub hours: Vec<Bar>,
}

/// The list: a page of what was searched for.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// What was searched for, if anything.
    pub search: String,
    /// The [`Health::key`] of those that are wanted, if not all.
    pub health: String,
    /// This page's webhooks, in their order.
    pub listed: Vec<Listed>,
    /// The number of webhooks of each [`Health::key`].
    pub by_health: Vec<(Health, u64)>,
    /// This page's number, from 0, and the number of pages.
    pub page: (usize, usize),
}

impl Webhooks {
    /// The most webhooks of a page: its size and the work for it stay small.
    pub const MAX_LISTED: usize = 30;

    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let total: u64 = self.by_health.iter().map(|(_, count)| count).sum();
        let content = html! {
            @if total == 0 { (empty()) } @else { (self.list(frame, total)) }
            p.note { a href=(Paths::DELETED) { "Deleted webhooks" } " · " a href=(Paths::KEYS) { "Keys for programs" } }
        };
        layout::page(frame, "Webhooks", &[], &content)
    }

    fn list(&self, frame: &Frame, total: u64) -> Markup {
        html! {
            div.title {
                h1 { "Webhooks" }
                a.button.primary href="/console/register/" { "Register a webhook" }
            }
            div.tools {
                (self.chips(total))
                form.search method="get" role="search" aria-label="Webhooks" {
                    @if !self.health.is_empty() { input type="hidden" name="health" value=(self.health); }
                    input type="search" name="q" value=(self.search) aria-label="Search by name or URL" placeholder="Search by name or URL" maxlength="200";
                    button { "Search" }
                }
            }
            p.fresh #fresh role="status" hidden { a href=(self.address(0)) { "The list has changed: show it" } }
            @if self.listed.is_empty() {
                p.nothing { (self.nothing()) " " a href=(Paths::HOME) { "Show all" } }
            } @else {
                div.heads aria-hidden="true" { span { "Webhook" } span { "Health" } span { "Attempts, last 24 hours" } }
                ul.webhooks #webhooks data-live="rows" { @for listed in &self.listed { (entry(listed, frame)) } }
                (self.pager())
            }
        }
    }

    const fn nothing(&self) -> &'static str {
        match (self.search.is_empty(), self.health.is_empty()) {
            (true, _) => "No webhook is in this state at the moment.",
            (false, true) => "No webhook matches this name or URL.",
            (false, false) => "No webhook in this state matches this name or URL.",
        }
    }

    /// How many webhooks there are of each health, each a way to see only those.
    fn chips(&self, total: u64) -> Markup {
        let chip = |key: &str, label: &Markup, count: u64| {
            let address = if key.is_empty() { Paths::HOME.to_owned() } else { format!("?health={key}") };
            html! { a.chip href=(address) aria-current=[(key == self.health).then_some("true")] { (label) " " span.count { (number(count)) } } }
        };
        html! {
            nav.chips #summary data-live="" aria-label="By health" {
                (chip("", &html! { "All" }, total))
                @for (health, number) in &self.by_health { (chip(health.key(), &html! { (health.mark()) (health.word()) }, *number)) }
            }
        }
    }

    fn address(&self, page: usize) -> String {
        let page = if page == 0 { String::new() } else { page.to_string() };
        format!("{}?{}", Paths::HOME, query([("health", &*self.health), ("q", &self.search), ("page", &page)]))
    }

    fn pager(&self) -> Markup {
        let (page, pages) = self.page;
        html! {
            @if pages > 1 {
                nav.pager aria-label="Pages" {
                    @if page > 0 { a.button href=(self.address(page - 1)) rel="prev" { "Previous" } }
                    span { "Page " (page + 1) " of " (pages) }
                    @if page + 1 < pages { a.button href=(self.address(page + 1)) rel="next" { "Next" } }
                }
            }
        }
    }
}

fn entry(listed: &Listed, frame: &Frame) -> Markup {
    let Listed { webhook, hours } = listed;
    let health = Health::of(webhook);
    html! {
        li #{ "w" (webhook.id) } class=(health.class()) {
            div.who {
                h2 { (health.mark()) a href=(Paths::webhook(webhook.id)) { (shortened(&webhook.settings.name)) } }
                p.url { (shortened(&webhook.settings.url)) }
            }
            p.health { (health::words(webhook, frame.now)) }
            div.day { (chart::spark(hours)) p { (day(hours)) } }
        }
    }
}

/// A day in two numbers.
fn day(hours: &[Bar]) -> Markup {
    let (succeeded, failed, _) = chart::sum(hours);
    html! {
        @if succeeded + failed == 0 { "none" } @else {
            (count(succeeded + failed, "attempt", "attempts"))
            @if failed > 0 { ", " strong { (number(failed)) " failed" } }
        }
    }
}

fn empty() -> Markup {
    html! {
        div.empty {
            h1 { "No webhooks yet" }
            p { "A webhook sends your account's events, such as a closed quote or a completed stock receipt, to a system of your choice within seconds: as a signed HTTPS request." }
            ol.steps {
                li { strong { "Register" } " a URL of that system that accepts POST requests, and choose its events." }
                li { strong { "Verify" } " each request, with the signing secret and code in five languages." }
                li { strong { "Test" } " it with a sample, and see here whether deliveries succeed." }
            }
            p { a.button.primary href="/console/register/" { "Register the first webhook" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use ledger::{Backlog, WebhookHealth, WebhookSettings};
    use time::Duration;

    use super::*;
    use crate::health::tests::{NOW, frame, webhook};

    #[test]
    fn the_largest_page_is_at_most_100_kb() {
        let backlog = Backlog {
            waiting: 1_000,
            dropped: 1_000,
            skipped: 1_000,
            next_attempt_at: Some(NOW),
            is_cancelling: true,
            is_queued: true,
            ..Backlog::default()
        };
        for c in ["\"", "\u{61c}", "漢"] {
            let settings = WebhookSettings {
                name: c.repeat(255),
                url: format!("https://example.com/{}", c.repeat(2_000)),
                ..webhook().settings
            };
            let health = WebhookHealth {
                failure_count: 7,
                failing_since: Some(NOW),
                last_failure_at: Some(NOW),
                last_failure: Some(c.repeat(300)),
                ..WebhookHealth::default()
            };
            let webhook = Webhook { settings, health, backlog, ..webhook() };
            let hour =
                |hour| Bar { from: NOW + Duration::HOUR * hour, succeeded: 100_000, failed: 90_000, dropped: 40_000 };
            let listed = Listed { webhook, hours: (0..24).map(hour).collect() };
            let page = Webhooks {
                search: c.repeat(200),
                health: Health::Dropping.key().to_owned(),
                listed: vec![listed; Webhooks::MAX_LISTED],
                by_health: vec![(Health::Dropping, 10_000)],
                page: (1, 400),
            };
            let text = page.render(&frame(&c.repeat(255), &"t".repeat(64)));
            assert!(text.len() < 100_000, "{} bytes", text.len());
        }
    }
}
