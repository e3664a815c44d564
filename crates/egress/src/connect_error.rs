//! The typed errors of our connectors, which hyper passes on.

use std::{error::Error, io, net::SocketAddr};

use domain::{RefusedAddress, RefusedHost, RefusedPort};

use crate::{no_descriptor::NoDescriptor, resolver::LookupError};

/// Why there is no connection. The texts are for logs. What an administrator reads is in `failure_messages`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The host cannot be a name in a certificate, and so none in the DNS.
    #[error("{host:?} is not a host name")]
    InvalidName { host: String },
    /// The name does not resolve.
    #[error("{host:?} does not resolve")]
    Unresolved { host: String, source: LookupError },
    /// The operator denies the host.
    #[error(transparent)]
    RefusedHost(RefusedHost),
    /// The operator does not allow the port.
    #[error(transparent)]
    RefusedPort(RefusedPort),
    /// The URL holds an address that the policy refuses.
    #[error("refused address")]
    RefusedLiteral(#[source] RefusedAddress),
    /// The policy refuses every address of the name. This is the first refusal.
    #[error("every address of {host:?} is refused")]
    RefusedName { host: String, source: RefusedAddress },
    /// There is no TCP connection to any of the addresses. The error is that of the last one tried.
    #[error("no connection to {address} nor to {others} others")]
    Tcp { address: SocketAddr, others: usize, source: io::Error },
    /// The deadline passed before there was a connection.
    #[error("connecting took too long")]
    Slow,
    /// The TLS handshake failed.
    #[error("TLS handshake")]
    Tls(#[source] Box<dyn Error + Send + Sync>),
}

impl ConnectError {
    /// Returns whether no descriptor was left, for the connection or to look up the name.
    pub(crate) fn is_without_descriptor(&self) -> bool {
        match self {
            Self::Unresolved { source, .. } => *source == LookupError::NoDescriptor,
            Self::Tcp { source, .. } => NoDescriptor::is_cause_of(source),
            _ => false,
        }
    }

    /// Returns whether the operator does not allow the URL. A name whose addresses are all refused is no such refusal: its
    /// name servers may be wrong, and they may be ours.
    pub(crate) const fn is_refused_url(&self) -> bool {
        matches!(self, Self::RefusedHost(_) | Self::RefusedPort(_) | Self::RefusedLiteral(_))
    }
}
