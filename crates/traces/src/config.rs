//! What an operator decides about traces.

use std::time::Duration;

use egress::{EgressError, Internal, InternalConfig};
use uuid::Uuid;

use crate::{
    CollectorHeaders, Exporter, SampleRatio, Traces,
    otlp::{self, PATH},
    stats::Stats,
};

/// The longest answer of a collector, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

/// What an operator decides, and who exports.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// Where spans go: an absolute URL, `http` or `https`. One without a path gets `/v1/traces`.
    pub endpoint: String,
    /// Headers of each export.
    pub headers: CollectorHeaders,
    /// The time for one export, from resolving to the end of the answer.
    pub timeout: Duration,
    /// The part of the traces that begin here.
    pub ratio: SampleRatio,
    /// The contents of a PEM bundle of certificate authorities to trust besides Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The process's name.
    pub service: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Traces {
    /// Sets traces up. Connects nothing. The exporter has to be run.
    ///
    /// # Errors
    /// [`EgressError::Url`] for the endpoint; any other for the authorities.
    pub fn new(config: TracesConfig) -> Result<(Self, Exporter), EgressError> {
        let TracesConfig { endpoint, headers, timeout, ratio, extra_ca_pem, service, version } = config;
        let client = InternalConfig {
            url: with_path(endpoint),
            timeout,
            extra_ca_pem,
            user_agent: format!("webhooks/{version}"),
            answer_limit: ANSWER_LIMIT,
        };
        let client = Internal::new(client)?;
        let stats = Stats::default();
        let (traces, ended) = Self::on(ratio, stats.clone());
        let resource = otlp::resource(service, version, Uuid::new_v4().to_string());
        Ok((traces, Exporter { ended, in_hand: 0, client, headers, resource, version, stats, is_failing: false }))
    }
}

/// A URL without a path is a collector's address.
fn with_path(endpoint: String) -> String {
    let Some((_, rest)) = endpoint.split_once("://") else { return endpoint };
    match rest.find(['/', '?']) {
        None => endpoint + PATH,
        Some(at) if &rest[at..] == "/" => endpoint.trim_end_matches('/').to_owned() + PATH,
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
