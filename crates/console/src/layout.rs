//! What every page has.

use domain::TenantId;
use maud::{DOCTYPE, Markup, html};
use strum::{EnumString, IntoStaticStr};
use time::OffsetDateTime;

use crate::{Paths, assets::address, text::foreign, times::zone};

/// What a page knows of its request.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The organization that the page is of.
    pub tenant: TenantId,
    /// The user, as the business application names them.
    pub user: String,
    /// The token that its forms carry.
    pub token: String,
    /// The time of the request.
    pub now: OffsetDateTime,
    /// What the form before this page has done.
    pub done: Option<Done>,
    /// Whether the console logs users in and out by itself.
    pub logs_out: bool,
    /// Why deliveries wait at present.
    pub brake: Option<BrakeCause>,
}

/// Why deliveries of all webhooks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrakeCause {
    /// An operator has stopped them.
    Operator,
    /// The service has found a fault of its own, at one dispatcher at least.
    Fault,
}

impl BrakeCause {
    const fn message(self) -> &'static str {
        match self {
            Self::Operator => {
                "The service's operators have stopped deliveries for now. They wait: nothing is lost, and no attempt is used up."
            }
            Self::Fault => {
                "The service has a fault, and its operators are notified. Deliveries may be late: nothing is lost, and no attempt \
                 is used up while they wait."
            }
        }
    }
}

/// What a form has done, to be said on the page after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Done {
    /// Name, URL or events were changed.
    Changed,
    /// The webhook was paused.
    Paused,
    /// The webhook was activated.
    Activated,
    /// The webhook was deleted.
    Deleted,
    /// Waiting deliveries are being cancelled.
    Cancelled,
    /// A test is queued.
    Tested,
    /// A delivery is queued to be sent again.
    Resent,
    /// A registration came twice.
    Registered,
    /// A recovery was not begun, as another one is under way.
    Another,
    /// A form that creates a key came twice.
    KeyCreated,
    /// A key was revoked.
    KeyRevoked,
}

impl Done {
    /// The word in the query string.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns true if it is not what was asked for.
    const fn is_warning(self) -> bool {
        matches!(self, Self::Registered | Self::Another | Self::KeyCreated)
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Changed => "Saved. The next attempt of every delivery uses the new settings.",
            Self::Paused => "Paused. Waiting deliveries are kept. New events are skipped and can be recovered.",
            Self::Activated => "Active again. Waiting deliveries are being sent, at a limited rate.",
            Self::Deleted => "Deleted. Waiting deliveries are cancelled.",
            Self::Cancelled => "The deliveries that were waiting are being cancelled.",
            Self::Tested => "The test is queued. Its outcome will be shown on this page.",
            Self::Resent => "The delivery is queued to be sent again. Its outcome will be shown on this page.",
            Self::Registered => {
                "This form has already registered this webhook, and its secret cannot be shown again. If you did not see the secret, delete this webhook and register it again."
            }
            Self::Another => {
                "This recovery is already running, so yours did not begin. Wait until it has finished, then count again."
            }
            Self::KeyCreated => {
                "This form has already created a key, which cannot be shown again. If you did not see the key, revoke it and create another one."
            }
            Self::KeyRevoked => "Revoked. The service refuses this key from now on.",
        }
    }
}

/// A place above a page: its name and its address.
pub(crate) type Crumb<'a> = (&'a str, String);

/// The whole page.
pub(crate) fn page(frame: &Frame, title: &str, crumbs: &[Crumb<'_>], content: &Markup) -> String {
    let body = html! {
        a.skip href="#main" { "Skip to the content" }
        header.top {
            a.brand href=(Paths::HOME) { (mark()) "Webhooks" }
            form.find action="/console/find/" method="get" role="search" aria-label="Find" {
                input type="search" name="id" aria-label="An id or a text" placeholder="Find an id, or a text such as Q-2026-0117" required maxlength="256" autocomplete="off" spellcheck="false";
            }
            div.account {
                (organization(frame.tenant))
                span.user title={ "Logged in as " (domain::visible(&frame.user)) } { (foreign(&frame.user)) }
                @if frame.logs_out {
                    form method="post" action="/console/logout/" {
                        (token(frame))
                        input type="hidden" name="organization" value=(frame.tenant);
                        button.link { "Log out" }
                    }
                }
            }
        }
        main #main {
            @if !crumbs.is_empty() {
                nav.crumbs aria-label="Breadcrumb" { @for (name, path) in crumbs { a href=(path) { (foreign(name)) } } }
            }
            @if let Some(brake) = frame.brake { p.brake role="status" { (brake.message()) } }
            @if let Some(done) = frame.done { p.done.warn[done.is_warning()] role="status" { (done.message()) } }
            (content)
        }
        footer.foot {
            p { "Times are in " (zone()) "." }
            a href="/api/v1/docs/" { "API reference" }
        }
        div.toasts role="status" {
            p.stale #stale hidden { "The connection to the service is lost. This page is from " span {} ". The console reconnects automatically." }
            p.stale #ended hidden { "Your session has ended. " a href="" { "Log in again" } }
            p.stale #gone hidden { "This page can no longer be shown. " a href="" { "Load it again to see why" } }
            p.stale #unused hidden { "Nobody has used this page for 30 minutes. It is from " span {} ". Press a key to refresh it." }
        }
    };
    document(title, &body)
}

/// The beginning of the organization's id. A session may change its organization while pages are open.
fn organization(tenant: TenantId) -> Markup {
    let id = tenant.to_string();
    let beginning = id.split('-').next().unwrap_or_default();
    html! { span.organization #organization data-live="" title={ "Organization " (id) } { "Organization " code { (beginning) } } }
}

/// A page of the log-in, or of an error. An error's page shows the session's organization if there is a session.
pub(crate) fn bare(title: &str, tenant: Option<TenantId>, content: &Markup) -> String {
    let body = html! {
        header.top {
            a.brand href=(Paths::HOME) { (mark()) "Webhooks" }
            @if let Some(tenant) = tenant { div.account { (organization(tenant)) } }
        }
        main.narrow #main { (content) }
    };
    document(title, &body)
}

fn document(title: &str, body: &Markup) -> String {
    let links = html! {
        link rel="icon" type="image/svg+xml" href=(address("icon.svg"));
        link rel="stylesheet" href=(address("console.css"));
        script type="module" src=(address("console.js")) {}
    };
    with_links(&format!("{title} · Webhooks"), &links, body)
}

/// A whole page: its title, what its head links to, and its body.
pub(crate) fn with_links(title: &str, links: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (domain::visible(title)) }
                (links)
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn mark() -> Markup {
    html! { svg.mark viewBox="0 0 24 24" aria-hidden="true" { path d="M5 6a4 4 0 0 1 8 0c0 1-.4 2-1 2.700L15 14M19 18a4 4 0 0 1-7.700-1.500M5 12.500A4 4 0 1 0 8.500 18H15" {} } }
}

/// The field that ties a form to the session.
pub(crate) fn token(frame: &Frame) -> Markup {
    html! { input type="hidden" name="token" value=(frame.token); }
}

/// A form that is one button, whose class may be empty.
pub(crate) fn button(frame: &Frame, action: &str, label: &str, class: &str) -> Markup {
    html! { form method="post" action=(action) { (token(frame)) button class=(class) { (label) } } }
}

/// A button that copies the text of an element. It is shown only with the script.
pub(crate) fn copy(id: &str, label: &str, name: &str) -> Markup {
    html! { button type="button" class="small" data-copy=(id) aria-label=(name) hidden { (label) } }
}
