//! The administrators' console: over HTTP, and in a real browser.
mod forms;
mod http;
mod keyboard;
mod meanwhile;
mod pictures;
mod screens;

use end_to_end::{
    api::{Answer, Api},
    system::TestSystem,
};
use uuid::Uuid;

/// The most bytes of a page.
const MAX_PAGE_BYTES: usize = 100_000;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// The value of a hidden field on a page.
fn hidden(page: &str, name: &str) -> String {
    between(page, &format!("name=\"{name}\" value=\""), "\"").to_owned()
}

/// The part of a page from one text to another.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("no {from}: {page}"));
    rest.split(to).next().unwrap()
}

async fn post(api: &Api, path: &str, fields: &str) -> Answer {
    api.send("POST", path, &[FORM], fields.to_owned()).await
}

fn assert_leads(answer: &Answer, to: &str) {
    assert_eq!((answer.status, answer.header("location")), (303, Some(to)), "{}", answer.text);
}

/// An administrator of a new tenant of the shared system.
struct Console {
    system: TestSystem,
    tenant: Uuid,
    admin: Api,
    /// The token of the session's forms.
    token: String,
}

impl Console {
    async fn open() -> Self {
        let system = TestSystem::shared().await;
        let (tenant, admin) = system.tenant().await;
        let token = hidden(&admin.get("/console/register/").await.text, "token");
        Self { system, tenant, admin, token }
    }

    /// Registers a webhook. Returns its id, and the path of its page.
    async fn webhook(&self, events: &[&str]) -> (String, String) {
        let id = self.admin.create("https://localhost/", events).await.id;
        let page = format!("/console/webhooks/{id}/");
        (id, page)
    }

    /// Posts a form with the session's token.
    async fn post(&self, path: &str, fields: &str) -> Answer {
        post(&self.admin, path, &format!("token={}&{fields}", self.token)).await
    }
}
