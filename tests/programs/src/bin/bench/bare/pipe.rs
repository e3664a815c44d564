//! The process of the bare pipe. Its client is set up like that of `egress`, without the protection from receivers.

use std::{io::Read, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, header::CONTENT_TYPE};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use lapin::{
    Connection, ConnectionProperties,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::Value;

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Runs until standard input ends.
pub(crate) async fn run(order: &str) {
    let order: Value = serde_json::from_str(order).expect("the order is JSON");
    let text = |name: &str| order[name].as_str().expect("a text").to_owned();
    let client = client(&order);
    let properties = ConnectionProperties::default().with_connection_name("bench (pipe)".into());
    let connection = Connection::connect(&text("amqp"), properties).await.expect("the broker answers");
    let channel = connection.create_channel().await.expect("a channel opens");
    let prefetch = order["prefetch"].as_u64().and_then(|prefetch| prefetch.try_into().ok()).expect("it fits");
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.expect("the prefetch is good");
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let consumer = channel.basic_consume(text("queue").as_str().into(), "pipe".into(), options, arguments);
    let mut consumer = consumer.await.expect("the queue exists");
    let url: Arc<str> = text("url").into();
    tokio::spawn(async move {
        while let Some(Ok(delivery)) = consumer.next().await {
            tokio::spawn(deliver(client.clone(), Arc::clone(&url), delivery));
        }
    });
    println!("ready");
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}

async fn deliver(client: Https, url: Arc<str>, mut delivery: Delivery) {
    let body = Full::new(Bytes::from(std::mem::take(&mut delivery.data)));
    let request = Request::post(&*url).header(CONTENT_TYPE, "application/json").body(body);
    let answer = client.request(request.expect("the request is well formed")).await;
    let whole = match answer {
        Ok(answer) if answer.status().is_success() => answer.into_body().collect().await.is_ok(),
        _ => false,
    };
    if whole {
        let _ = delivery.ack(BasicAckOptions::default()).await;
    } else {
        let _ = delivery.nack(BasicNackOptions { requeue: true, ..Default::default() }).await;
    }
}

fn client(order: &Value) -> Https {
    let mut roots = RootCertStore::empty();
    let ca =
        CertificateDer::from_pem_file(order["ca"].as_str().expect("a path")).expect("the file holds a certificate");
    roots.add(ca).expect("it can be trusted");
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(tcp);
    let max_idle = order["max_idle"].as_u64().and_then(|idle| idle.try_into().ok()).expect("it fits");
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(order["idle_seconds"].as_u64().expect("a number")))
        .pool_max_idle_per_host(max_idle)
        .build(https)
}
