//! The fixtures: a tenant, its administrator, its three webhooks, and the behaviour of their receivers.

use end_to_end::{
    api::Api,
    receiver::{Behaviour, Received, Receiver, Reply},
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    environment::Environment,
    failure::{Checked, Failure, same},
    page::{say, short},
};

/// How often the receiver of `/fails-twice` fails.
pub(crate) const FAILURES: usize = 2;

/// A webhook as its administrator knows it.
pub(crate) struct Webhook {
    /// The path of its URL.
    pub(crate) path: &'static str,
    pub(crate) id: String,
    pub(crate) secret: String,
}

pub(crate) struct Fixtures {
    pub(crate) tenant: Uuid,
    pub(crate) admin: Api,
    /// Subscribes to all seven events. Its receiver answers 200.
    pub(crate) always_ok: Webhook,
    /// Subscribes to `quote.accepted`. Its receiver fails [`FAILURES`] times and then succeeds.
    pub(crate) fails_twice: Webhook,
    /// Subscribes to `return_note.created`. Its receiver never succeeds.
    pub(crate) always_fails: Webhook,
}

/// One server for all three webhooks. The path decides the answer.
pub(crate) fn behaviour() -> Behaviour {
    end_to_end::receiver::behaviour(|request, nth| match request.path.as_str() {
        "/fails-twice" if nth <= FAILURES => Reply::status(500),
        "/always-fails" => Reply::status(503),
        _ => Reply::ok(),
    })
}

/// The requests that arrived for one webhook.
pub(crate) fn at<'r>(webhook: &Webhook, received: &'r [Received]) -> Vec<&'r Received> {
    received.iter().filter(|one| one.path == webhook.path).collect()
}

impl Fixtures {
    /// Creates a session and registers the webhooks through REST.
    pub(crate) async fn register(environment: &Environment, receiver: &Receiver) -> Checked<Self> {
        let tenant = Uuid::new_v4();
        let session = environment.webhookctl(&["session", "create", "--tenant", &tenant.to_string()]).await?;
        say!("  webhookctl session create --tenant {tenant}: sessionid={}", short(&session, 6));
        let admin = Api { address: environment.api, session: Some(session) };
        say!("  {:<36}  {:<13}  {:<20}  signing_secret (shown once)", "id", "url path", "events");
        let all = domain::EventType::ALL.map(domain::EventType::as_str);
        let always_ok = create(&admin, receiver, "/always-ok", &all).await?;
        let fails_twice = create(&admin, receiver, "/fails-twice", &["quote.accepted"]).await?;
        let always_fails = create(&admin, receiver, "/always-fails", &["return_note.created"]).await?;
        Ok(Self { tenant, admin, always_ok, fails_twice, always_fails })
    }

    pub(crate) const fn webhooks(&self) -> [&Webhook; 3] {
        [&self.always_ok, &self.fails_twice, &self.always_fails]
    }
}

async fn create(admin: &Api, receiver: &Receiver, path: &'static str, events: &[&str]) -> Checked<Webhook> {
    let name = format!("Demo {path}");
    let body = json!({"name": name, "url": receiver.url(path), "events": events});
    let answer = admin.post("/api/v1/webhooks/", &body).await;
    if answer.status != 201 {
        let came = format!("{}: {}", answer.status, answer.text);
        return Err(Failure::new(format!("registering {path}"), "201", came).in_log_of("api-service"));
    }
    let created = answer.json();
    let text = |member: &str| created[member].as_str().unwrap_or_default().to_owned();
    let webhook = Webhook { path, id: text("id"), secret: text("signing_secret") };
    same(
        format!("id and signing_secret of {path} are empty"),
        &false,
        &(webhook.id.is_empty() || webhook.secret.is_empty()),
    )?;
    let events = if events.len() == 1 { events[0].to_owned() } else { format!("all {}", events.len()) };
    say!("  {:<36}  {path:<13}  {events:<20}  {}", webhook.id, short(&webhook.secret, 10));
    Ok(webhook)
}
