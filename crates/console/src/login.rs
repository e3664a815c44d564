//! The log-in of development: by a one-time code, or by a session's id.

use maud::html;

use crate::layout;

/// The page.
#[derive(Clone, Debug)]
pub struct Login<'a> {
    /// The one-time code of the address.
    pub code: Option<&'a str>,
    /// What is wrong with what was given.
    pub fault: Option<&'a str>,
    /// The path of the page that was asked for.
    pub next: &'a str,
}

impl Login<'_> {
    /// The page.
    pub fn render(&self) -> String {
        let content = html! {
            h1 { "Log in" }
            @if let Some(fault) = self.fault { p.fault role="alert" { (fault) } }
            @if let Some(code) = self.code {
                form.stack method="post" action="/console/login/" {
                    input type="hidden" name="code" value=(code);
                    input type="hidden" name="next" value=(self.next);
                    p { "This link works once." }
                    button.primary autofocus { "Continue to the console" }
                }
            } @else {
                form.stack method="post" action="/console/login/" {
                    input type="hidden" name="next" value=(self.next);
                    div.field {
                        label for="session" { "Session id" }
                        p.hint #session-hint { "For development: in production the business application logs you in." }
                        input type="password" id="session" name="session" required autocomplete="off" aria-describedby="session-hint";
                    }
                    div.actions { button.primary { "Log in" } }
                }
                // Browsers send no cookie with a request that another site's link began.
                p.note { "If you are logged in already: " a href=(self.next) { "open the page" } "." }
                p.note { "An operator makes a session with " code { "webhookctl session create" } ", or a link with " code { "webhookctl session link" } "." }
            }
        };
        layout::bare("Log in", None, &content)
    }
}
