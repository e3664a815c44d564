//! A connection to the API that is kept, so that a measurement is of the answer alone.

use std::time::{Duration, Instant};

use bytes::Bytes;
use end_to_end::api::Api;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// An administrator on one connection.
pub(crate) struct Kept {
    sender: SendRequest<Empty<Bytes>>,
    host: String,
    cookie: String,
}

impl Kept {
    /// Connects.
    pub(crate) async fn open(api: &Api) -> Self {
        let stream = TcpStream::connect(api.address).await.expect("the API listens");
        stream.set_nodelay(true).expect("a socket can be told so");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        tokio::spawn(connection);
        let session = api.session.as_deref().unwrap_or_default();
        Self { sender, host: api.address.to_string(), cookie: format!("sessionid={session}") }
    }

    /// GET: the answer, and the time from the question to its last byte.
    pub(crate) async fn get(&mut self, path: &str) -> (Value, Duration) {
        let request = Request::get(path).header("host", &self.host).header("cookie", &self.cookie);
        let request = request.body(Empty::new()).expect("the request is well formed");
        self.sender.ready().await.expect("the connection is kept");
        let begun = Instant::now();
        let answer = self.sender.send_request(request).await.expect("it answers");
        assert_eq!(answer.status(), 200, "{path}");
        let body = answer.into_body().collect().await.expect("the answer is whole").to_bytes();
        let took = begun.elapsed();
        (serde_json::from_slice(&body).expect("it is JSON"), took)
    }
}
