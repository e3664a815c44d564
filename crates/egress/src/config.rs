//! What an operator decides about outgoing requests.

use std::{net::SocketAddr, time::Duration};

use domain::AddressPolicy;
use tls::TlsError;

/// What an operator decides about outgoing requests.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// The deadline of one request: resolving, connecting, TLS, sending and the answer with its body.
    pub timeout: Duration,
    /// Where deliveries may go.
    pub address_policy: AddressPolicy,
    /// The name servers to ask. If empty, those of the system, after its `/etc/hosts`.
    pub name_servers: Vec<SocketAddr>,
    /// The contents of a PEM bundle of certificate authorities to trust besides Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// How long a connection may stay unused before it is closed. Checked once in that time, at most every 90 ms.
    pub idle_timeout: Duration,
    /// How many unused connections to one host and port are kept. With zero, none is ever reused.
    pub max_idle_per_host: usize,
    /// About how many unused connections to all hosts together are kept.
    pub max_idle: usize,
    /// The value of the header `User-Agent`.
    pub user_agent: String,
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The extra authorities are unusable, or TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The URL of the operator's application is not an absolute `http` or `https` URL.
    #[error("not an absolute URL of http or https")]
    Url,
    /// The user agent cannot be written as a header.
    #[error("the user agent holds characters that a header cannot carry")]
    UserAgent,
    /// The resolver refused its own settings.
    #[error("the resolver of names cannot be set up")]
    Resolver(#[source] Box<dyn std::error::Error + Send + Sync>),
}
