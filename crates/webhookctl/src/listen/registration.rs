//! The webhook that a run registers for itself, by the REST API as an administrator does.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use domain::{EventType, TenantId, WebhookId};
use egress::InternalAnswer;
use hyper::{
    HeaderMap, Method,
    header::{CONTENT_TYPE, COOKIE, HeaderValue},
};
use ledger::{CredentialHash, Ledger, Session};
use serde_json::{Value, json};
use service_kit::Settings;
use time::OffsetDateTime;

use super::{answers::PROGRAM_TIMEOUT, screen::Screen};
use crate::{connect, server_error, session};

/// The name of every webhook that is registered here. One that an earlier run has left is known by it and its URL.
const WEBHOOK_NAME: &str = "webhookctl listen";
/// How long a session lasts. It is revoked as soon as the calls are made.
const SESSION_LIFETIME: Duration = Duration::from_secs(60);

/// A webhook that is removed at the end.
pub(super) struct Registration {
    api: Api,
    pub(super) id: WebhookId,
    pub(super) secret: String,
}

impl Registration {
    /// Registers a webhook, and removes those that earlier runs have left at the same URL.
    pub(super) async fn make(
        settings: &Settings,
        api: Option<&str>,
        tenant: TenantId,
        url: &str,
        events: &[EventType],
        screen: &Screen,
    ) -> anyhow::Result<Self> {
        let api = Api::new(settings, api, tenant)?;
        let events = if events.is_empty() { &EventType::ALL[..] } else { events };
        let webhook = json!({ "name": WEBHOOK_NAME, "url": url, "events": events });
        let calls = async |session: &str| {
            for left in api.left(session, url).await? {
                api.call(session, Method::DELETE, &format!("/{left}/"), None).await?;
                screen.removed_a_left_one(&left);
            }
            let made = api.call(session, Method::POST, "/", Some(&webhook)).await?;
            let id = made["id"].as_str().and_then(|id| id.parse().ok());
            let secret = made["signing_secret"].as_str().map(str::to_owned);
            id.zip(secret).context("the API's answer holds no id or no secret")
        };
        let (id, secret) = api.logged_in(calls).await?;
        Ok(Self { api, id, secret })
    }

    /// Deletes the webhook.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let Self { api, id, .. } = self;
        api.logged_in(async |session| api.call(session, Method::DELETE, &format!("/{id}/"), None).await).await.map(drop)
    }
}

/// The REST API, and the ledger for sessions.
struct Api {
    base: String,
    ledger: Ledger,
    tenant: TenantId,
}

impl Api {
    fn new(settings: &Settings, base: Option<&str>, tenant: TenantId) -> anyhow::Result<Self> {
        session::require_database(settings)?;
        let base = match base {
            Some(base) => base.trim_end_matches('/').to_owned(),
            None => {
                let mut listen = settings.api.listen;
                if listen.ip().is_unspecified() {
                    listen.set_ip([127, 0, 0, 1].into());
                }
                format!("http://{listen}")
            }
        };
        Ok(Self { base, ledger: connect::ledger(settings)?, tenant })
    }

    /// Runs calls with a session of the tenant, which lasts no longer than they do.
    async fn logged_in<T>(&self, calls: impl AsyncFnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let session = Session { tenant: self.tenant, user: WEBHOOK_NAME.to_owned(), role: "admin".to_owned() };
        let id = session::stored(&self.ledger, session, OffsetDateTime::now_utc() + SESSION_LIFETIME).await?;
        let done = calls(&id).await;
        server_error::database(self.ledger.session_revoke(&CredentialHash::of(&id)).await)?;
        done
    }

    /// The ids of webhooks that earlier runs have left.
    async fn left(&self, session: &str, url: &str) -> anyhow::Result<Vec<String>> {
        let (mut left, mut page) = (Vec::new(), "/".to_owned());
        loop {
            let list = self.call(session, Method::GET, &page, None).await?;
            let ours = |webhook: &&Value| webhook["name"] == WEBHOOK_NAME && webhook["url"] == url;
            let webhooks = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            left.extend(webhooks.iter().filter(ours).filter_map(|webhook| Some(webhook["id"].as_str()?.to_owned())));
            match list["next_cursor"].as_str() {
                Some(cursor) => page = format!("/?cursor={cursor}"),
                None => return Ok(left),
            }
        }
    }

    /// Calls `/api/v1/webhooks` and what is below it.
    async fn call(&self, session: &str, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/webhooks{path}", self.base);
        let api = || format!("the API at {} (api.listen, WEBHOOKS__API__LISTEN, or --api)", self.base);
        let program = connect::client(&url, PROGRAM_TIMEOUT, None).with_context(api)?;
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::try_from(format!("sessionid={session}"))?);
        let body = body.map(|body| {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Bytes::from(body.to_string())
        });
        let answer = program.send(method, headers, body.unwrap_or_default()).await.with_context(api)?;
        read(&answer).with_context(api)
    }
}

/// What the API answered, or why it refused, in its own words.
fn read(InternalAnswer { status, body, .. }: &InternalAnswer) -> anyhow::Result<Value> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if (200..300).contains(status) {
        return Ok(answer);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let faults = answer["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let faults: String =
        faults.iter().map(|one| format!("; {} {}", text(&one["field"]), text(&one["message"]))).collect();
    let detail = answer["detail"].as_str().unwrap_or("the answer is not one of this API");
    bail!("it answered {status}: {detail}{faults}")
}
