//! What the developer sees.

use std::{
    fmt::Display,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use domain::{TenantId, WebhookId, indented, shortened, visible};
use time::{OffsetDateTime, macros::format_description};

use super::{
    answers::ReceiverAnswer,
    verdict::{Verdict, Verdicts},
};
use crate::output;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// How many lines of a body are shown.
const MAX_BODY_LINES: usize = 16;
/// How many characters of a value that a stranger may have sent.
const MAX_VALUE_CHARS: usize = 200;

/// Writes to standard output: in colour if that is a terminal and `NO_COLOR` is not set.
pub(super) struct Screen {
    is_full: bool,
    requests: AtomicU64,
    good: AtomicU64,
}

/// A request as it is shown.
pub(super) struct Shown<'r> {
    pub(super) event: &'r str,
    pub(super) delivery: &'r str,
    pub(super) event_id: &'r str,
    /// The number of the attempt within its run, as the service gives it.
    pub(super) attempt: &'r str,
    pub(super) is_test: bool,
    /// The number of requests of the delivery that this run has received.
    pub(super) nth: u32,
    pub(super) own_headers: Vec<&'r str>,
    pub(super) verdicts: &'r Verdicts,
    pub(super) body: &'r [u8],
}

impl Screen {
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, requests: AtomicU64::new(0), good: AtomicU64::new(0) }
    }

    pub(super) fn listening(&self, url: &str, forward: Option<&str>) {
        let to = forward.map(|url| format!(", forwarding to {url}")).unwrap_or_default();
        self.write(&format!("{BOLD}listening on {url}{BOLD:#}{to}\n"));
    }

    /// A setting that the dispatchers seem to lack.
    pub(super) fn setting(&self, setting: &str) {
        self.write(&format!("  {WARN}the dispatchers need{WARN:#} {setting}\n"));
    }

    pub(super) fn registered(&self, tenant: TenantId, webhook: WebhookId) {
        self.write(&format!("  registered webhook {webhook}; Ctrl-C removes it\n  for tenant {tenant}\n"));
    }

    pub(super) fn removed_a_left_one(&self, webhook: &str) {
        self.write(&format!("  removed webhook {}, left by an earlier run\n", line(webhook)));
    }

    pub(super) fn no_secret(&self) {
        self.write(&format!("  {WARN}signatures are not verified{WARN:#}: give --secret, or --register a webhook\n"));
    }

    pub(super) fn removed(&self) {
        self.write("\nremoved the webhook\n");
    }

    pub(super) fn summary(&self) {
        let (requests, good) = (self.requests.load(Ordering::Relaxed), self.good.load(Ordering::Relaxed));
        self.write(&format!("{requests} deliveries received, {good} with valid signatures\n"));
    }

    /// A delivery that has arrived, before its answer.
    pub(super) fn arrived(&self, shown: &Shown<'_>) {
        let Shown { event, delivery, event_id, attempt, is_test, nth, own_headers, verdicts, body } = shown;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.good.fetch_add(u64::from(verdicts.are_good()), Ordering::Relaxed);
        let test = if *is_test { "test, " } else { "" };
        let attempt = if attempt.is_empty() { String::new() } else { format!("attempt {}, ", line(attempt)) };
        let (clock, event) = (clock(), line(event));
        let mut text = format!("\n{DIM}{clock}{DIM:#} {BOLD}{event}{BOLD:#}  {test}{attempt}request {nth}\n");
        text += &format!("  {} {DIM}of event{DIM:#} {}\n", line(delivery), line(event_id));
        if !own_headers.is_empty() {
            text += &format!("  {DIM}with{DIM:#} {}\n", line(&own_headers.join(", ")));
        }
        text += &verdict("X-Service-Signature", &verdicts.service);
        text += &verdict("webhook-signature", &verdicts.standard);
        text += &self.body(body);
        self.write(&text);
    }

    /// What was answered, and how long that took.
    pub(super) fn answered(&self, delivery: &str, answer: &ReceiverAnswer, took: Duration) {
        let style = if (200..300).contains(&answer.status) { GOOD } else { BAD };
        let fault = answer.fault.as_ref().map(|fault| format!(": {}", line(fault))).unwrap_or_default();
        let status = answer.status;
        self.write(&format!(
            "  {style}→ {status}{style:#} after {}{fault}  {DIM}{}{DIM:#}\n",
            seconds(took),
            line(delivery)
        ));
    }

    /// The service did not wait for the answer, or this run did not.
    pub(super) fn unanswered(&self, delivery: &str, why: &str, after: Duration) {
        let delivery = line(delivery);
        self.write(&format!("  {BAD}→ no answer{BAD:#}: {why} after {}  {DIM}{delivery}{DIM:#}\n", seconds(after)));
    }

    /// A request that is no delivery.
    pub(super) fn refused(&self, what: &str, status: u16, why: &str) {
        self.write(&format!("\n{DIM}{}{DIM:#} {} {BAD}→ {status}{BAD:#}: {why}\n", clock(), line(what)));
    }

    /// A connection without TLS.
    pub(super) fn no_tls(&self, peer: impl Display, error: &io::Error) {
        if tls::is_not_tls(error) {
            self.no_connection(peer, "the client does not speak TLS: the URL must begin with https://");
        } else {
            self.no_connection(peer, format!("{error} (check that the sender trusts the authority)"));
        }
    }

    /// A connection without a request.
    pub(super) fn no_connection(&self, peer: impl Display, why: impl Display) {
        let why = line(&why.to_string());
        self.write(&format!("\n{DIM}{}{DIM:#} {BAD}no TLS with {peer}{BAD:#}: {why}\n", clock()));
    }

    fn body(&self, body: &[u8]) -> String {
        let Ok(text) = std::str::from_utf8(body) else {
            return format!("  {DIM}{} bytes that are not text{DIM:#}\n", body.len());
        };
        let shown = visible(&indented(text).unwrap_or_else(|| text.to_owned()));
        let (most, longest) = if self.is_full { (usize::MAX, usize::MAX) } else { (MAX_BODY_LINES, MAX_VALUE_CHARS) };
        let mut lines = shown.lines();
        let mut text: String =
            lines.by_ref().take(most).map(|line| format!("  {}\n", shortened(line, longest))).collect();
        match lines.count() {
            0 => {}
            more => text += &format!("  {DIM}… {more} more lines: --full shows them{DIM:#}\n"),
        }
        text
    }

    /// Writes at once, so that deliveries of the same moment do not mix. Nobody may be there to read it.
    fn write(&self, text: &str) {
        let _ = output::styled(text);
    }
}

/// Foreign text on one line.
fn line(text: &str) -> String {
    shortened(visible(text).replace('\n', " "), MAX_VALUE_CHARS)
}

fn verdict(name: &str, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Good => format!("  {GOOD}✓{GOOD:#} {name}\n"),
        Verdict::Unverified => format!("  {WARN}?{WARN:#} {name} {DIM}not verified: no secret{DIM:#}\n"),
        Verdict::NotSent => format!("  {DIM}- {name} not sent: signing.standard_webhooks is false{DIM:#}\n"),
        Verdict::Bad(fault) => format!("  {BAD}✗ {name}: {}{BAD:#}\n", line(fault)),
    }
}

fn clock() -> String {
    let format = format_description!("[hour]:[minute]:[second]Z");
    OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
