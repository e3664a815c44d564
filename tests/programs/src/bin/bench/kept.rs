//! A kept connection to the API, so that a measurement covers only the answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use end_to_end::api::Api;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// An administrator on one connection.
pub(crate) struct Kept {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    cookie: String,
}

pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// From the request to the last byte of the answer.
    pub(crate) took: Duration,
}

impl Kept {
    pub(crate) async fn open(api: &Api) -> Self {
        let stream = TcpStream::connect(api.address).await.expect("the API listens");
        stream.set_nodelay(true).expect("a socket can be told so");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        tokio::spawn(connection);
        let session = api.session.as_deref().unwrap_or_default();
        Self { sender, host: api.address.to_string(), cookie: format!("sessionid={session}") }
    }

    /// Sends any request, with JSON or without a body.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answered {
        let request = Request::builder().method(method).uri(path);
        let mut request = request.header("host", &self.host).header("cookie", &self.cookie);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(body.into())).expect("the request is well formed");
        self.sender.ready().await.expect("the connection is kept");
        let begun = Instant::now();
        let answer = self.sender.send_request(request).await.expect("it answers");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("the answer is whole").to_bytes();
        Answered { status, body, took: begun.elapsed() }
    }
}
