//! An error as a page.

use maud::html;

use crate::{Paths, find::sentence, layout};

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// The status and its phrase.
    pub title: &'a str,
    /// What is wrong, in words.
    pub detail: &'a str,
    /// What else is to be known, or nothing.
    pub advice: &'a str,
    /// By which operators find it in the log.
    pub request_id: &'a str,
    /// Whether the session is missing or has ended.
    pub is_logged_out: bool,
}

impl Problem<'_> {
    /// The page.
    #[must_use]
    pub fn render(&self) -> String {
        let content = html! {
            h1 { (self.title) }
            @if self.is_logged_out {
                p { "Your session has ended, and nothing was changed. Log in again, then repeat what you did." }
                p { a.button.primary href=(Paths::HOME) { "Log in" } }
            } @else {
                p { (sentence(self.detail)) @if !self.advice.is_empty() { " " (self.advice) } }
                p { a.button.primary href=(Paths::HOME) { "To the webhooks" } }
            }
            p.hint { "If you report this, name the request: " code { (self.request_id) } }
        };
        layout::bare(self.title, &content)
    }
}
