//! One delivery: what happened, and what was sent.

use domain::{ATTEMPT_HEADER, DeliveryState, TEST_HEADER, delivery_headers, indented, visible};
use ledger::{Attempt, Delivery};
use maud::{Markup, html};

use crate::{
    Frame, LogQuery, Paths, WebhookFrame,
    deliveries::{badge, class},
    layout::{self, button, copy},
    text::{beginning, shortened, shown},
    times::{clock, due, full, milliseconds, relative},
};

/// How much of a body is shown as it was sent, and with a line for each member, in bytes of HTML.
const MAX_BODY_BYTES: usize = 12_000;
const MAX_INDENTED_BYTES: usize = 20_000;
/// How long a body may be that stands in a command, and how much of an answer is shown, likewise.
const MAX_COMMAND_BODY_BYTES: usize = 3_000;
const MAX_ANSWER_BYTES: usize = 1_500;
/// How much of a URL stands in the request.
const MAX_URL_BYTES: usize = 12_500;
/// The maximum of steps that are shown: an attempt, or several that failed alike.
const MAX_STEPS: usize = 12;
/// The maximum of times that are shown of attempts that failed alike.
const MAX_TIMES: usize = 7;

/// The page.
#[derive(Clone, Debug)]
pub struct DeliveryDetails {
    /// Its webhook.
    pub webhook: WebhookFrame,
    /// The delivery.
    pub delivery: Delivery,
    /// The body that every attempt sends, unless it has expired.
    pub body: Option<String>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// The part of the log that led here.
    pub log: LogQuery,
}

impl DeliveryDetails {
    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let delivery = &self.delivery;
        let content = html! {
            div.title {
                div {
                    h1 { code { (delivery.event_type) } " " @if delivery.is_test { span.tag { "test" } } }
                    p.url { (shortened(self.webhook.name())) @if let Some(last) = self.attempts.last() { " · " (shortened(&last.url)) } }
                }
                div.actions #resend data-live="" { @if self.can_resend() { (self.resend(frame)) } }
            }
            div.banner.(class(delivery.state)) #outlook data-live="" { p { (badge(delivery.state)) " " (self.outlook(frame)) } }
            (self.timeline(frame))
            (self.ids())
            (self.request())
        };
        let log = format!("{}{}#log", Paths::webhook(self.webhook.id()), self.log.way_back());
        let crumbs: Vec<_> = self.webhook.crumbs().into_iter().chain([("Log", log)]).collect();
        layout::page(frame, &format!("Delivery {}", delivery.id), &crumbs, &content)
    }

    const fn can_resend(&self) -> bool {
        matches!(self.webhook, WebhookFrame::Live(_)) && self.body.is_some()
    }

    fn resend(&self, frame: &Frame) -> Markup {
        let again = if self.delivery.attempts == 0 { "Send now" } else { "Send again" };
        // What has arrived, or is on its way, is rarely wanted twice.
        let is_lost =
            matches!(self.delivery.state, DeliveryState::Dropped | DeliveryState::Skipped | DeliveryState::Cancelled);
        let class = if is_lost { "primary" } else { "" };
        let path = format!("{}{}", Paths::resend(self.webhook.id(), self.delivery.id), self.log.way_back());
        button(frame, &path, again, class)
    }

    fn ids(&self) -> Markup {
        let delivery = &self.delivery;
        html! {
            section {
                h2 { "Ids" }
                dl.facts {
                    div { dt { "Delivery, which the receiver sees as " code { "X-Service-Webhook-Id" } } dd { code #delivery-id { (delivery.id) } " " (copy("delivery-id", "Copy", "Copy the delivery id")) } }
                    div { dt { "Event, as the upstream service gave it" } dd { a href=(Paths::find(&delivery.event.to_string())) { code #event-id { (delivery.event) } } " " (copy("event-id", "Copy", "Copy the event id")) } }
                }
                p.note { "The event's page shows its outcome for every webhook." }
            }
        }
    }

    /// What happened, oldest first.
    fn timeline(&self, frame: &Frame) -> Markup {
        let (delivery, now) = (&self.delivery, frame.now);
        let steps: Vec<_> = self.attempts.chunk_by(fail_alike).collect();
        let shown = &steps[steps.len().saturating_sub(MAX_STEPS)..];
        // The data hold the latest attempts only.
        let hidden = usize::from(delivery.attempts).saturating_sub(shown.iter().map(|alike| alike.len()).sum());
        html! {
            section #timeline data-live="" {
                h2 { "What happened" }
                ol.timeline {
                    li { (step(&html! { "The event fired" }, &html! { (full(delivery.occurred_at())) " · " (relative(delivery.occurred_at(), now)) })) }
                    li { (step(&html! { "The service received it" }, &html! { (full(delivery.created_at)) })) }
                    @if hidden > 0 { li { p.note { (hidden) " earlier attempts are left out" } } }
                    @for alike in shown { (self.attempted(alike)) }
                    @if self.is_held() {
                        li.next { (step(&html! { "Held until the webhook is active again" }, &html! {})) }
                    } @else if let Some(at) = delivery.next_attempt_at {
                        li.next { (step(&html! { "Next attempt " (due(at, now)) }, &html! { @if at > now { "at " (clock(at, now)) } @else { "It is due, and queued." } })) }
                    } @else if delivery.state == DeliveryState::Pending && self.attempts.is_empty() {
                        li.next { (step(&html! { "The first attempt is queued or running" }, &html! {})) }
                    }
                }
            }
        }
    }

    /// The meaning of this delivery's state.
    fn outlook(&self, frame: &Frame) -> Markup {
        let (delivery, has_body) = (&self.delivery, self.body.is_some());
        html! {
            @match delivery.state {
                _ if self.is_held() => "The webhook is paused, and the delivery is held until the webhook is active again.",
                DeliveryState::Succeeded => "The receiver accepted the delivery.",
                DeliveryState::Pending if delivery.attempts > 0 => "The delivery is queued to be sent again. This page updates automatically.",
                DeliveryState::Pending => "The delivery is queued for its first attempt.",
                DeliveryState::Retrying => {
                    "The last attempt failed, and the delivery will be retried"
                    @if let Some(at) = delivery.next_attempt_at { ", " (due(at, frame.now)) }
                    "."
                }
                DeliveryState::Dropped if !has_body => "Every attempt failed, and the delivery was dropped. Its body has expired.",
                DeliveryState::Skipped if !has_body => "The webhook was paused when the event arrived, so nothing was sent. The body has expired.",
                DeliveryState::Dropped => "Every attempt failed, and the delivery was dropped. Fix the receiver, then send the delivery again.",
                DeliveryState::Cancelled => "The delivery was cancelled before it succeeded: an administrator cancelled the waiting deliveries or deleted the webhook, or the webhook was paused for too long.",
                DeliveryState::Skipped if self.webhook.is_paused() => "The webhook was paused when the event arrived, so nothing was sent. Activate the webhook before you send the delivery.",
                DeliveryState::Skipped => "The webhook was paused when the event arrived, so nothing was sent. You can send the delivery now.",
            }
        }
    }

    /// Returns true if no attempt is made before the webhook is active again.
    const fn is_held(&self) -> bool {
        self.delivery.state.is_waiting() && self.webhook.is_paused()
    }

    /// An attempt, or several that failed alike.
    fn attempted(&self, alike: &[Attempt]) -> Markup {
        let Some(latest) = alike.last() else { return html! {} };
        let is_good = latest.outcome.is_success();
        let (answer, _) = shown(&String::from_utf8_lossy(&latest.response_body), MAX_ANSWER_BYTES);
        let last = self.attempts.last();
        let is_last = last.is_some_and(|last| last.attempt == latest.attempt);
        let went_elsewhere = last.is_some_and(|last| last.url != latest.url);
        // Why it failed is what an administrator looks for.
        let is_open = is_last && !is_good;
        html! {
            li class=(if is_good { "good" } else { "bad" }) {
                div {
                    strong {
                        @if let [first, _, ..] = alike { (alike.len()) " attempts, " (first.attempt) " to " (latest.attempt) ": " } @else { "Attempt " (latest.attempt) ": " }
                        @match (latest.status, &latest.error) {
                            (_, Some(error)) => (shortened(error)),
                            (Some(status), None) => (status),
                            (None, None) => (latest.outcome),
                        }
                    }
                    p { @if alike.len() > 1 { "The latest: " } (when(latest)) @if went_elsewhere { " · to " (shortened(&latest.url)) } }
                    @if !answer.is_empty() {
                        details open[is_open] data-open[is_open] { summary { "The answer's beginning" } pre.raw tabindex="0" { (answer) } }
                    }
                    @if alike.len() > 1 {
                        details { summary { "When each was made" } @for attempt in alike.iter().rev().take(MAX_TIMES) { p { "Attempt " (attempt.attempt) ": " (when(attempt)) } } }
                    }
                }
            }
        }
    }

    fn request(&self) -> Markup {
        let id = self.delivery.id;
        let url = self.attempts.last().map(|attempt| shown(&attempt.url, MAX_URL_BYTES).0);
        html! {
            section #request data-live="" {
                div.title {
                    h2 { "The request" }
                    div.actions {
                        @if self.body.is_some() {
                            button type="button" data-copy="curl" hidden { "Copy as curl" }
                            a.button href=(Paths::body(self.webhook.id(), id)) download={ (id) ".json" } { "Download the body" }
                        }
                    }
                }
                pre.http tabindex="0" {
                    "POST " (url.as_deref().unwrap_or("(the webhook's URL)")) "\n"
                    @for (name, value) in self.headers() { b { (name) } ": " (value) "\n" }
                }
                p.note { "Each attempt has also its number of this run in " code { (ATTEMPT_HEADER) } " and its own signature: " code { "X-Service-Signature" } " and the headers of Standard Webhooks are not kept. The webhook's own headers are never shown." }
                @match &self.body {
                    Some(body) => (self.sent(body)),
                    None => p.note { "The body has expired: it is no longer kept, so the delivery cannot be sent again." },
                }
            }
        }
    }

    fn sent(&self, body: &str) -> Markup {
        let (raw, is_cut) = shown(body, MAX_BODY_BYTES);
        html! {
            @if is_cut { p.note { "The body has " (body.len()) " bytes; this is its beginning." } }
            @if let Some(json) = pretty(body).filter(|_| !is_cut) {
                pre #body tabindex="0" { (json) }
                details { summary { "As it was sent" } pre.raw tabindex="0" { (raw) } }
            } @else {
                pre.raw tabindex="0" { (raw) }
            }
            details { summary { "As a curl command, without a signature" } pre #curl tabindex="0" { (visible(&self.curl(body))) } }
        }
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let Delivery { id, event, event_type, is_test, .. } = self.delivery;
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        headers.extend(delivery_headers(id, event, event_type));
        headers.extend(is_test.then(|| (TEST_HEADER.0, TEST_HEADER.1.to_owned())));
        headers
    }

    fn curl(&self, body: &str) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let url = self.attempts.last().map_or("https://…", |attempt| &attempt.url);
        let headers: String =
            self.headers().iter().map(|(name, value)| format!(" \\\n  -H '{name}: {value}'")).collect();
        // What is long, or would not be copied as it is, comes from the file that was downloaded.
        let is_short = !beginning(body, MAX_COMMAND_BODY_BYTES).1 && visible(body) == body;
        let body = if is_short { body.to_owned() } else { format!("@{}.json", self.delivery.id) };
        // Without it, curl would take braces and brackets in the URL for a list of several.
        let globs = if url.contains(['{', '}', '[', ']']) { " --globoff" } else { "" };
        format!("curl{globs} {}{headers} \\\n  --data-binary {}", quoted(url), quoted(&body))
    }
}

/// The whole body with a line for each member, unless that is long or nested deep.
fn pretty(body: &str) -> Option<String> {
    let json = indented(Some(body).filter(|body| body.len() <= MAX_BODY_BYTES)?)?;
    let (json, is_cut) = shown(&json, MAX_INDENTED_BYTES);
    (!is_cut).then_some(json)
}

fn step(title: &Markup, about: &Markup) -> Markup {
    html! { div { strong { (title) } p { (about) } } }
}

/// Returns true for two attempts that failed in the same way.
fn fail_alike(one: &Attempt, next: &Attempt) -> bool {
    let failure = |attempt: &Attempt| (attempt.outcome, attempt.status, attempt.error.clone(), attempt.url.clone());
    !one.outcome.is_success() && failure(one) == failure(next)
}

fn when(attempt: &Attempt) -> Markup {
    html! { (full(attempt.started_at)) " · took " (took(attempt)) }
}

fn took(attempt: &Attempt) -> String {
    match attempt.elapsed().as_millis() {
        0 => "less than 1 ms".to_owned(),
        elapsed => milliseconds(elapsed),
    }
}

#[cfg(test)]
mod tests {
    use domain::EventType;

    use super::*;
    use crate::health::tests::{NOW, frame, webhook};

    fn attempt(attempt: u16, answer: &[u8]) -> Attempt {
        Attempt {
            attempt,
            url: format!("https://example.com/{}", "\"".repeat(2_028)),
            signed_at: NOW,
            started_at: NOW,
            duration_us: 1_000_000,
            outcome: domain::OutcomeClass::Status,
            status: Some(500),
            response_body: answer.to_vec(),
            error: Some("the receiver answered 500 Internal Server Error".to_owned()),
        }
    }

    fn page(body: &str, attempts: Vec<Attempt>) -> DeliveryDetails {
        let delivery = Delivery {
            id: "0192f0c1-0000-8000-8000-0000000000ab".parse().unwrap(),
            event: "0192f0c1-0000-7000-8000-0000000000ab".parse().unwrap(),
            event_type: EventType::QuoteClosed,
            is_test: false,
            state: DeliveryState::Dropped,
            attempts: 200,
            created_at: NOW,
            first_failed_at: Some(NOW),
            next_attempt_at: None,
        };
        let webhook = WebhookFrame::Live(Box::new(webhook()));
        DeliveryDetails { webhook, delivery, body: Some(body.to_owned()), attempts, log: LogQuery::default() }
    }

    fn rendered(page: &DeliveryDetails) -> String {
        page.render(&frame("u", "t"))
    }

    #[test]
    fn the_largest_page_is_at_most_100_kb() {
        let deep = format!("{}{}1{}", "[".repeat(60), "1,".repeat(2_800), "]".repeat(60));
        let nested = format!("{{\"a\":{}{}}}", "[".repeat(5_850), "]".repeat(5_850));
        for body in [
            &*format!("[{}\"\"]", "\"\",".repeat(1_990)),
            &"\"".repeat(262_144),
            &"\u{1}".repeat(262_144),
            &format!("\"{}\"", "\u{61c}".repeat(2_900)),
            &deep,
            &nested,
        ] {
            for answer in [&(0..=255).cycle().take(1024).collect::<Vec<u8>>()[..], &[b'"'; 1024], &[0xff; 1024]] {
                let attempts = (1..=200)
                    .map(|number| Attempt { status: Some(number / 15), ..attempt(number.unsigned_abs(), answer) });
                let page = rendered(&page(body, attempts.collect()));
                assert!(page.len() < 100_000, "{} bytes", page.len());
            }
        }
    }

    #[test]
    fn attempts_that_fail_alike_are_one_step_and_the_last_steps_are_shown() {
        let with_status = |number: u16, status: i16| Attempt { status: Some(status), ..attempt(number, b"") };
        let alternate = |number: u16| with_status(number, if number.is_multiple_of(2) { 500 } else { 503 });
        let shown = rendered(&page("{}", (1..=200).map(alternate).collect()));
        assert!(shown.contains("188 earlier attempts are left out") && shown.contains("Attempt 200: <bdi>"), "{shown}");
        let mut succeeded = with_status(200, 200);
        (succeeded.outcome, succeeded.error) = (domain::OutcomeClass::Success, None);
        let alike = (1..=4).map(|number| with_status(number, 503)).chain((5..=199).map(|number| attempt(number, b"")));
        let shown = rendered(&page("{}", alike.chain([succeeded]).collect()));
        for step in
            ["4 attempts, 1 to 4: <bdi>", "195 attempts, 5 to 199: <bdi>the receiver answered 500", "Attempt 200: 200"]
        {
            assert!(shown.contains(step), "{step}: {shown}");
        }
        assert!(!shown.contains("left out") && shown.contains("Attempt 193: <time"), "{shown}");
    }

    #[test]
    fn a_delivery_of_a_paused_webhook_is_held_and_is_not_said_to_be_retried() {
        for (is_active, held) in [(false, 2), (true, 0)] {
            let mut one = page("{}", vec![attempt(1, b"")]);
            let mut paused = webhook();
            paused.settings.is_active = is_active;
            one.webhook = WebhookFrame::Live(Box::new(paused));
            (one.delivery.state, one.delivery.next_attempt_at) = (DeliveryState::Retrying, Some(NOW));
            let page = rendered(&one).to_lowercase();
            assert_eq!(page.matches("held until the webhook is active again").count(), held, "{page}");
            assert_eq!(page.contains("will be retried") || page.contains("next attempt"), is_active, "{page}");
        }
    }

    #[test]
    fn a_page_leads_back_to_the_part_of_the_log_that_led_to_it() {
        let mut one = page("{}", vec![]);
        let back = |state: &str, query: &str| format!("/console/webhooks/{}/{query}#{state}", webhook().id);
        assert!(rendered(&one).contains(&back("log", "")));
        one.log = LogQuery { state: "dropped".to_owned(), cursor: "0a".to_owned(), ..LogQuery::default() };
        let shown = rendered(&one);
        assert!(shown.contains(&back("log", "?state=dropped&amp;cursor=0a")), "{shown}");
        assert!(shown.contains("/resend/?state=dropped&amp;cursor=0a"), "{shown}");
        one.log.state = "x".repeat(500);
        assert!(rendered(&one).contains(&back("log", "")), "a long one is left out");
    }

    #[test]
    fn a_body_nested_deeper_than_64_is_shown_as_it_was_sent() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let indented = "<pre id=\"body\"";
        assert!(rendered(&page(&nested(64), vec![])).contains(indented));
        let raw = rendered(&page(&nested(65), vec![]));
        assert!(!raw.contains(indented) && raw.contains(&format!("<pre class=\"raw\" tabindex=\"0\">{}<", nested(65))));
    }

    #[test]
    fn a_command_sends_what_was_sent_and_runs_nothing_else() {
        let mut one = page("{\"a\":\"'; rm -rf / #$(id)`id`\"}", vec![attempt(1, b"")]);
        one.attempts[0].url = "https://example.com/in?a='$(id)'".to_owned();
        let command = one.curl("{\"a\":\"'; rm -rf / #$(id)`id`\"}");
        assert!(command.starts_with(r"curl 'https://example.com/in?a='\''$(id)'\''' \"), "{command}");
        assert!(command.ends_with(r#"--data-binary '{"a":"'\''; rm -rf / #$(id)`id`"}'"#), "{command}");
        // curl would send a request for each of these.
        one.attempts[0].url = "https://example.com/in?a={1,2}&b[0]=1".to_owned();
        let command = one.curl("{}");
        assert!(command.starts_with("curl --globoff 'https://example.com/in?a={1,2}&b[0]=1'"), "{command}");
        // A page cannot show these as they are, so they would not be copied as they are.
        let file = "--data-binary '@0192f0c1-0000-8000-8000-0000000000ab.json'";
        let command = one.curl("{\"a\":\"\u{202e}\"}");
        assert!(command.ends_with(file), "{command}");
    }

    #[test]
    fn a_delivery_without_a_body_says_so_and_offers_no_resend() {
        let mut one = page("{}", vec![attempt(1, b"")]);
        let with = rendered(&one);
        assert!(with.contains("Send again") && with.contains("Download the body"), "{with}");
        one.body = None;
        let without = rendered(&one);
        assert!(!without.contains("Send again") && !without.contains("Download the body"), "{without}");
        assert!(without.contains("The body has expired") && !without.contains("id=\"curl\""), "{without}");
    }
}
