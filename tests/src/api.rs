//! A client of the REST API.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::wait::{SOON, eventually};

/// A client with or without a session.
#[derive(Clone, Debug)]
pub struct Api {
    /// The address of the API.
    pub address: SocketAddr,
    /// The session's id, sent as the cookie.
    pub session: Option<String>,
}

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub text: String,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }
}

/// The cursor after this entry of the list at a path, as the API makes it.
#[must_use]
pub fn cursor_after(list: &str, entry: Uuid) -> String {
    let hash = digest(&SHA256, list.trim_end_matches('/').as_bytes());
    format!("{}{}", entry.simple(), hex::encode(&hash.as_ref()[..4]))
}

/// A webhook, as its creation shows it.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl Api {
    /// Sends a request with the cookie and these `headers`.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        self.try_send(method, path, headers, body).await.expect("the API answers")
    }

    /// Like [`Api::send`], for an API that may be down.
    ///
    /// # Errors
    /// When there is no complete answer.
    ///
    /// # Panics
    /// When the request is not valid.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", self.address.to_string());
        if let Some(session) = &self.session {
            request = request.header("cookie", format!("sessionid={session}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("the request is well formed");
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let body = answer.into_body().collect().await?.to_bytes();
        drop(sender);
        let _ = driver.await;
        Ok(Answer { status, headers, text: String::from_utf8(body.into())? })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], Bytes::new()).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// PATCH of JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Activates or pauses a webhook.
    ///
    /// # Panics
    /// When the API refuses it.
    pub async fn set_active(&self, webhook: &str, is_active: bool) {
        let answer = self.patch(&format!("/api/v1/webhooks/{webhook}/"), &json!({"is_active": is_active})).await;
        assert_eq!((answer.status, &answer.json()["is_active"]), (200, &json!(is_active)), "{}", answer.text);
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], Bytes::new()).await
    }

    /// POST without a body.
    pub async fn ask(&self, path: &str) -> Answer {
        self.send("POST", path, &[], Bytes::new()).await
    }

    /// A page of a webhook's deliveries.
    ///
    /// # Panics
    /// When the API refuses.
    pub async fn log(&self, webhook: &str, query: &str) -> Value {
        let answer = self.get(&format!("/api/v1/webhooks/{webhook}/deliveries/?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Every entry of a list, page by page.
    ///
    /// # Panics
    /// When the API refuses.
    pub async fn whole(&self, list: &str, query: &str) -> Vec<Value> {
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{list}?{query}{cursor}")).await.json();
            entries.extend(page["data"].as_array().expect("a page has entries").iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return entries,
            }
        }
    }

    /// One delivery, with its attempts.
    ///
    /// # Panics
    /// When it is not there.
    pub async fn delivery(&self, webhook: &str, id: &str) -> Value {
        let answer = self.get(&format!("/api/v1/webhooks/{webhook}/deliveries/{id}/")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Waits until a webhook's newest delivery is in this state.
    pub async fn newest_in(&self, webhook: &str, state: &str) -> Value {
        eventually(&format!("the newest delivery is {state}"), SOON, || async {
            let newest = self.log(webhook, "limit=1").await["data"][0].clone();
            (newest["state"] == state).then_some(newest)
        })
        .await
    }

    /// Requests the resend of a delivery, as a list shows it.
    ///
    /// # Panics
    /// When it has no id.
    pub async fn resend(&self, webhook: &str, delivery: &Value) -> Answer {
        let id = delivery["id"].as_str().expect("a delivery has an id");
        self.ask(&format!("/api/v1/webhooks/{webhook}/deliveries/{id}/resend/")).await
    }

    /// Requests a recovery of a webhook's deliveries, or their number.
    pub async fn recover(&self, webhook: &str, wanted: &Value) -> Answer {
        self.post(&format!("/api/v1/webhooks/{webhook}/recover/"), wanted).await
    }

    /// Waits until the recovery at a path is done. Returns it.
    pub async fn recovered(&self, path: &str) -> Value {
        eventually("the recovery is done", SOON, || async {
            let recovery = self.get(path).await.json();
            (recovery["state"] == "done").then_some(recovery)
        })
        .await
    }

    /// Registers a webhook.
    ///
    /// # Panics
    /// When the API refuses.
    pub async fn create(&self, url: &str, events: &[&str]) -> Created {
        let answer = self.post("/api/v1/webhooks/", &json!({"name": "A test", "url": url, "events": events})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let webhook = answer.json();
        let text = |name: &str| webhook[name].as_str().expect(name).to_owned();
        Created { id: text("id"), secret: text("signing_secret") }
    }

    /// Reads a webhook.
    ///
    /// # Panics
    /// When it is not there.
    pub async fn webhook(&self, id: &str) -> Value {
        let answer = self.get(&format!("/api/v1/webhooks/{id}/")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }
}
