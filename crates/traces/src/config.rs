//! What an operator decides about traces.

use std::time::Duration;

use egress::{EgressError, Internal, InternalConfig};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use uuid::Uuid;

use crate::{CollectorHeaders, Traces, collector::Collector};

/// The longest answer of a collector, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The time for one export with all its retries. Then its spans are dropped, and the next ones get their turn.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The pauses between the requests of an export that fails, doubling.
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// What an operator decides, and who exports.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// Where spans go: an absolute URL, `http` or `https`. One without a path gets `/v1/traces`.
    pub endpoint: String,
    /// Headers of each request to the collector.
    pub headers: CollectorHeaders,
    /// The time for one request, from resolving to the end of the answer.
    pub timeout: Duration,
    /// The part of the traces that begin here, from 0 to 1.
    pub ratio: f64,
    /// The contents of a PEM bundle of certificate authorities to trust besides Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The process's name.
    pub service: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Traces {
    /// Sets traces up, in a tokio runtime, and starts their thread. Connects nothing.
    ///
    /// # Errors
    /// [`EgressError::Url`] for the endpoint; any other for the authorities.
    pub fn new(config: TracesConfig) -> Result<Self, EgressError> {
        let TracesConfig { endpoint, headers, timeout, ratio, extra_ca_pem, service, version } = config;
        let url = with_path(endpoint);
        let user_agent = format!("webhooks/{version}");
        let client =
            InternalConfig { url: url.clone(), timeout, extra_ca_pem, user_agent, answer_limit: MAX_ANSWER_BYTES };
        let retries = RetryPolicy::recommended()
            .with_max_retries(usize::MAX)
            .with_initial_delay(MIN_PAUSE)
            .with_max_delay(MAX_PAUSE);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(Internal::new(client)?, headers.0))
            .with_endpoint(url)
            .with_timeout(EXPORT_TIMEOUT)
            .with_retry_policy(retries)
            .build()
            .map_err(|_| EgressError::Url)?;
        let attributes = [
            KeyValue::new("service.namespace", "webhooks"),
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", version),
            KeyValue::new("service.instance.id", Uuid::new_v4().to_string()),
        ];
        exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        let scope = InstrumentationScope::builder("webhooks").with_version(version).build();
        Ok(Self::on(ratio, scope, exporter))
    }
}

/// A URL without a path is a collector's address.
fn with_path(endpoint: String) -> String {
    const TRACES_PATH: &str = "/v1/traces";
    let Some((_, rest)) = endpoint.split_once("://") else { return endpoint };
    match rest.find(['/', '?']) {
        None => endpoint + TRACES_PATH,
        Some(at) if &rest[at..] == "/" => endpoint.trim_end_matches('/').to_owned() + TRACES_PATH,
        Some(_) => endpoint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_traces() {
        for (endpoint, url) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://a.example/otlp/v1/traces", "https://a.example/otlp/v1/traces"),
            ("https://a.example/otlp?team=1", "https://a.example/otlp?team=1"),
        ] {
            assert_eq!(with_path(endpoint.to_owned()), url);
        }
    }
}
