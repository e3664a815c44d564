//! The outcome class of an attempt (specification, sections 3, 7 and 8).

use strum::{Display, IntoStaticStr};

/// Why an attempt succeeded or failed. A closed set, fit for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OutcomeClass {
    /// The receiver answered 2xx.
    Success,
    /// The receiver answered with another status. A redirect is a failure too: it is not followed.
    Status,
    /// The deadline passed before the receiver's status had arrived.
    Timeout,
    /// No TCP connection: refused, reset or unreachable.
    Connect,
    /// The host name did not resolve to an address that the egress policy allows.
    Dns,
    /// The TLS handshake failed: certificate, name, version or cipher.
    Tls,
    /// The egress policy refuses the host, the port or the address in the URL.
    RefusedAddress,
    /// The peer did not speak HTTP/1.1, or broke off in the middle of an answer.
    Protocol,
}

impl OutcomeClass {
    /// Every class, for metrics and checks.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Status,
        Self::Timeout,
        Self::Connect,
        Self::Dns,
        Self::Tls,
        Self::RefusedAddress,
        Self::Protocol,
    ];

    /// The name that the ledger, the metrics and the API use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The class of an HTTP status: any 2xx is a success (specification, section 4.4).
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        if status >= 200 && status <= 299 { Self::Success } else { Self::Status }
    }

    /// Whether the delivery succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}
