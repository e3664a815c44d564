//! Why a TLS connection failed.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{self, Display},
    io,
};

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};
use time::OffsetDateTime;

/// Why a TLS connection failed. The texts may hold what the peer sent: whoever shows one bounds it.
pub enum Failure<'a> {
    /// The certificate has expired. The second after 1970 of its end, where it is known.
    Expired(Option<u64>),
    /// The certificate is not valid yet. The second after 1970 of its beginning, where it is known.
    NotValidYet(Option<u64>),
    /// No authority that is trusted has signed the certificate.
    UnknownIssuer,
    /// The certificate is for other names than the one asked for, which is given where it is known.
    WrongName(Option<Cow<'a, str>>),
    /// The certificate is not meant for servers.
    NotForServers,
    /// The certificate is refused for another reason.
    Certificate(&'a dyn Display),
    /// The peer wants a certificate of ours, and got none.
    CertificateWanted,
    /// The peer refuses our certificate, with this alert.
    CertificateRefused(&'a dyn Display),
    /// The peer does not speak TLS.
    NotTls,
    /// The peer speaks neither TLS 1.2 nor TLS 1.3.
    TooOld,
    /// Anything else.
    Other(&'a dyn Display),
}

impl<'a> Failure<'a> {
    /// The TLS failure among an error and its causes, if there is one.
    #[must_use]
    pub fn find(error: &'a (dyn Error + 'static)) -> Option<Self> {
        rustls_error(error).map(|error| match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            rustls::Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)
            | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => Self::TooOld,
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => Self::CertificateWanted,
            rustls::Error::AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA,
            ) => Self::CertificateRefused(error),
            other => Self::Other(other),
        })
    }

    fn of_certificate(error: &'a CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired(None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(Some(not_after.as_secs())),
            CertificateError::NotValidYet => Self::NotValidYet(None),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotValidYet(Some(not_before.as_secs())),
            // A bad signature: the name of a trusted authority, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::NotValidForName => Self::WrongName(None),
            CertificateError::NotValidForNameContext { expected, .. } => Self::WrongName(Some(expected.to_str())),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::NotForServers,
            CertificateError::Other(other) => Self::Certificate(other),
            other => Self::Certificate(other),
        }
    }
}

/// In the words of whoever operates the client. Says no names: the context of a log's line has them.
impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(None) => f.write_str("the server's certificate has expired"),
            Self::Expired(Some(second)) => write!(f, "the server's certificate expired on {}", Date(*second)),
            Self::NotValidYet(None) => f.write_str("the server's certificate is not valid yet"),
            Self::NotValidYet(Some(second)) => {
                write!(f, "the server's certificate is not valid before {}", Date(*second))
            }
            Self::UnknownIssuer => f.write_str("the server's certificate is signed by an unknown authority"),
            Self::WrongName(None) => f.write_str("the server's certificate is not for its name"),
            Self::WrongName(Some(name)) => write!(f, "the server's certificate is not for the name {name}"),
            Self::NotForServers => f.write_str("the server's certificate is not meant for servers"),
            Self::Certificate(reason) => write!(f, "the server's certificate is rejected: {reason}"),
            Self::CertificateWanted => f.write_str("the server wants a client certificate, and none is set"),
            Self::CertificateRefused(alert) => write!(f, "the server refuses our client certificate: {alert}"),
            Self::NotTls => f.write_str("the server does not speak TLS on this port"),
            Self::TooOld => f.write_str("the server speaks neither TLS 1.2 nor TLS 1.3"),
            Self::Other(reason) => write!(f, "the TLS connection failed: {reason}"),
        }
    }
}

/// A [`Failure`] in words, for an error that outlives its cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FailureText(String);

impl FailureText {
    /// The TLS failure among an error and its causes, if there is one.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        Failure::find(error).map(|failure| Self(failure.to_string()))
    }

    /// Words for a failure of which the TLS library knows nothing.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

struct Date(u64);

impl Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok()) {
            Some(time) => write!(f, "{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day()),
            None => write!(f, "second {} after 1970", self.0),
        }
    }
}

/// The source of an `io::Error` skips the error that it holds, so this looks inside.
fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error
        .downcast_ref()
        .or_else(|| rustls_error(error.downcast_ref::<io::Error>()?.get_ref()?))
        .or_else(|| rustls_error(error.source()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_inside_of_io_errors_is_found() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let held = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        assert!(matches!(Failure::find(&held), Some(Failure::UnknownIssuer)));
        assert!(Failure::find(&io::Error::from(io::ErrorKind::Other)).is_none());
    }

    #[test]
    fn what_a_server_says_of_our_certificate_is_told_from_what_we_say_of_its() {
        for (error, words) in [
            (
                rustls::Error::AlertReceived(AlertDescription::CertificateRequired),
                "the server wants a client certificate, and none is set",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::UnknownCA),
                "the server refuses our client certificate: received fatal alert: UnknownCA",
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                    time: rustls::pki_types::UnixTime::now(),
                    not_after: rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(86_400)),
                }),
                "the server's certificate expired on 1970-01-02",
            ),
        ] {
            assert_eq!(FailureText::find(&error), Some(FailureText::new(words)));
        }
    }
}
