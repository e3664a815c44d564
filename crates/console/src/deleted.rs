//! The deleted webhooks, the latest first.

use ledger::DeletedWebhook;
use maud::{Markup, html};

use crate::{
    Frame, Paths,
    history::older,
    layout,
    text::shortened,
    times::{full, relative},
    webhook::name_of,
};

/// A page of the deleted webhooks whose history is kept.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The latest first.
    pub webhooks: Vec<DeletedWebhook>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

impl Deleted {
    /// The maximum of webhooks on a page.
    pub const MAX_LISTED: u16 = 40;

    /// The page.
    pub fn render(&self, frame: &Frame) -> String {
        let content = html! {
            div.title { h1 { "Deleted webhooks" } }
            p.note { "Log and history can be read until they expire: the history 90 days after the deletion, or with the log if that is kept for longer." }
            @if self.webhooks.is_empty() { p.nothing { "None." } }
            ol.entries { @for webhook in &self.webhooks { (entry(webhook, frame)) } }
            (older("cursor", self.next.as_deref()))
        };
        layout::page(frame, "Deleted webhooks", &[("Webhooks", Paths::HOME.to_owned())], &content)
    }
}

fn entry(webhook: &DeletedWebhook, frame: &Frame) -> Markup {
    html! {
        li {
            p { strong { a href=(Paths::webhook(webhook.id)) { (shortened(name_of(webhook))) } } }
            p.url { (shortened(&webhook.settings.url)) }
            p { "deleted by " (shortened(&webhook.user)) " " (relative(webhook.deleted_at, frame.now)) span.exact { (full(webhook.deleted_at)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::WebhookId;
    use ledger::WebhookSettings;
    use time::OffsetDateTime;

    use super::*;
    use crate::{History, NoticeList, WebhookFrame, health::tests::frame};

    fn settings(name: &str, url: &str) -> WebhookSettings {
        WebhookSettings { name: name.to_owned(), url: url.to_owned(), ..WebhookSettings::default() }
    }

    fn deleted() -> DeletedWebhook {
        DeletedWebhook {
            id: WebhookId::from(uuid::Uuid::from_u128(7)),
            entry: uuid::Uuid::nil(),
            settings: settings("Orders <b>", "https://erp.example.com/hooks"),
            user: "ann".to_owned(),
            deleted_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_deleted_webhook_is_listed_with_its_name_its_url_and_a_link() {
        let page = Deleted { webhooks: vec![deleted()], next: Some("abc".to_owned()) }.render(&frame("", ""));
        for part in ["Orders &lt;b&gt;", "https://erp.example.com/hooks", "deleted by <bdi>ann</bdi>", "?cursor=abc"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains(&format!("href=\"{}\"", Paths::webhook(deleted().id))), "{page}");
    }

    #[test]
    fn the_page_of_a_deleted_webhook_has_its_name_and_url_and_no_log_once_that_has_expired() {
        for (webhook, has_log) in [(WebhookFrame::Deleted(deleted()), true), (WebhookFrame::Expired(deleted()), false)]
        {
            let notices = NoticeList { notices: Vec::new(), next: None };
            let page = History { webhook, entries: Vec::new(), next: None, notices }.render(&frame("", ""));
            assert!(page.contains("Orders &lt;b&gt;") && page.contains("https://erp.example.com/hooks"), "{page}");
            assert_eq!(page.contains(">Deliveries</a>"), has_log, "{page}");
        }
    }

    #[test]
    fn the_largest_page_is_at_most_100_kb() {
        for c in ["\"", "\u{61c}", "漢"] {
            let webhook = DeletedWebhook {
                settings: settings(&c.repeat(255), &format!("https://example.com/{}", c.repeat(2_000))),
                user: c.repeat(255),
                ..deleted()
            };
            let page = Deleted { webhooks: vec![webhook; Deleted::MAX_LISTED.into()], next: Some("c".repeat(40)) };
            let text = page.render(&frame("", ""));
            assert!(text.len() < 100_000, "{} bytes", text.len());
        }
    }
}
