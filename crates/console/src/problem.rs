//! An error as a page.

use domain::{TenantId, WebhookId};
use maud::html;

use crate::{Paths, layout, text::sentence};

/// Where an error's page leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// To the log-in: the session is missing or has ended.
    LogIn,
    /// To the log-in as somebody else: this user may see nothing here.
    OtherUser,
    /// To the webhook that the page was about.
    Webhook(WebhookId),
    /// To the list.
    Webhooks,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct ProblemPage<'a> {
    /// The status and its phrase.
    pub title: &'a str,
    /// What is wrong, in words.
    pub detail: &'a str,
    /// The organization of the session, if there is one.
    pub tenant: Option<TenantId>,
    /// By which operators find it in the log.
    pub request_id: &'a str,
    /// What can be done about it.
    pub way_out: WayOut,
}

impl ProblemPage<'_> {
    /// The page.
    pub fn render(&self) -> String {
        let content = html! {
            h1 { (self.title) }
            p #problem {
                @if self.way_out == WayOut::LogIn { "Your session has ended, and nothing was changed. Log in again, then repeat the action." }
                @else { (sentence(self.detail)) }
            }
            p {
                @match self.way_out {
                    WayOut::LogIn => a.button.primary href=(Paths::HOME) { "Log in" },
                    WayOut::OtherUser => a.button.primary href=(Paths::LOG_IN) { "Log in as another user" },
                    WayOut::Webhook(id) => a.button.primary href=(Paths::webhook(id)) { "To the webhook" },
                    WayOut::Webhooks => a.button.primary href=(Paths::HOME) { "To the webhooks" },
                }
            }
            p.hint { "If you report this, include the request id: " code { (self.request_id) } }
        };
        layout::bare(self.title, self.tenant, &content)
    }
}
