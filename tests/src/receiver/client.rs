//! A client that plays the service, for the receiver's own tests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Receiver, TestCa};

pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const SECRET: &str = "whsec_0123456789abcdef";
pub(super) const BODY: &str = r#"{"event_type":"quote.closed","tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00Z","data":{}}"#;

pub(super) async fn connect(ca: &TestCa, receiver: &Receiver) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let tcp = TcpStream::connect(receiver.addr()).await?;
    let stream = tls.connect(ServerName::try_from("localhost")?, tcp).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

pub(super) fn request(id: &str) -> Request<Full<Bytes>> {
    let secret = signing::SigningSecret::from(SECRET.to_owned());
    let now = OffsetDateTime::now_utc().unix_timestamp();
    Request::post("/hook?a=1")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-service-webhook-id", id)
        .header("x-service-event", "quote.closed")
        .header(signing::SIGNATURE_HEADER, signing::sign(&secret, BODY.as_bytes(), now))
        .body(Full::from(BODY))
        .unwrap()
}

pub(super) async fn post(sender: &mut SendRequest<Full<Bytes>>, id: &str) -> anyhow::Result<u16> {
    let response = sender.send_request(request(id)).await?;
    let status = response.status().as_u16();
    response.into_body().collect().await?;
    Ok(status)
}

pub(super) const ID: &str = "019ca8bb-b63b-81e0-9e67-8295475fb864";
pub(super) const OTHER: &str = "019ca8bb-b63b-81e0-9e67-000000000000";
