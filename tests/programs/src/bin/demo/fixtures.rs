//! The fixtures: a tenant, its administrator, its three webhooks, and the receiver of all three.

use domain::EventType;
use end_to_end::{
    api::{Api, Created},
    commands::done,
    receiver::{Received, Receiver, Reply, behaviour},
    system::System,
};
use uuid::Uuid;

use crate::page::say;

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
    /// One server for all three webhooks. The path decides the answer.
    pub(crate) receiver: Receiver,
    /// Subscribes to all seven events. Its receiver answers 200.
    pub(crate) always_ok: Webhook,
    /// Subscribes to `quote.accepted`. Its receiver fails [`FAILURES`] times and then succeeds.
    pub(crate) fails_twice: Webhook,
    /// Subscribes to `return_note.created`. Its receiver never succeeds.
    pub(crate) always_fails: Webhook,
}

impl Webhook {
    /// The requests that arrived for this webhook.
    pub(crate) fn among<'r>(&self, received: &'r [Received]) -> Vec<&'r Received> {
        received.iter().filter(|one| one.path == self.path).collect()
    }
}

impl Fixtures {
    /// Creates a session and registers the webhooks through REST.
    pub(crate) async fn register(system: &System) -> Self {
        let tenant = Uuid::new_v4();
        let session = done(&system.variables, &["session", "create", "--tenant", &tenant.to_string()]).await;
        let session = session.trim().to_owned();
        say!("  webhookctl session create --tenant {tenant}: sessionid={}", short(&session, 6));
        let admin = Api { session: Some(session), ..system.anonymous().await };
        let answer = behaviour(|request, nth| match request.path.as_str() {
            "/fails-twice" if nth <= FAILURES => Reply::status(500),
            "/always-fails" => Reply::status(503),
            _ => Reply::ok(),
        });
        let receiver = Receiver::start(&system.ca, answer);
        say!("  {:<36}  {:<13}  {:<20}  signing_secret (shown once)", "id", "url path", "events");
        let create = async |path: &'static str, events: &[&str]| {
            let Created { id, secret } = admin.create(&receiver.url(path), events).await;
            let events = if events.len() == 1 { events[0].to_owned() } else { format!("all {}", events.len()) };
            say!("  {id:<36}  {path:<13}  {events:<20}  {}", short(&secret, 10));
            Webhook { path, id, secret }
        };
        let always_ok = create("/always-ok", &EventType::ALL.map(EventType::as_str)).await;
        let fails_twice = create("/fails-twice", &["quote.accepted"]).await;
        let always_fails = create("/always-fails", &["return_note.created"]).await;
        Self { tenant, admin, receiver, always_ok, fails_twice, always_fails }
    }

    pub(crate) const fn webhooks(&self) -> [&Webhook; 3] {
        [&self.always_ok, &self.fails_twice, &self.always_fails]
    }
}

/// The beginning of a long or secret text.
pub(crate) fn short(text: &str, characters: usize) -> String {
    text.chars().take(characters).chain("..".chars()).collect()
}
