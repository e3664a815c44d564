//! Why a TLS connection failed.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{self, Display},
    io,
};

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible, PeerMisbehaved};
use time::OffsetDateTime;

use crate::verifier::WrongDatesOfIntermediate;

/// Why a TLS connection failed. The texts may hold what the peer sent: whoever shows one bounds it.
pub enum Failure<'a> {
    /// A certificate has expired. The second after 1970 of its end, where it is known.
    Expired(Whose, Option<u64>),
    /// A certificate is not valid yet. The second after 1970 of its beginning, where it is known.
    NotValidYet(Whose, Option<u64>),
    /// No authority that is trusted has signed the certificate.
    UnknownIssuer,
    /// The certificate is for other names than the one asked for, which is given where it is known.
    WrongName(Option<Cow<'a, str>>),
    /// The certificate is not meant for servers.
    NotForServers,
    /// The certificate is that of an authority.
    Authority,
    /// The certificate, or one of its authorities, is signed with an algorithm that is not accepted.
    WeakSignature,
    /// A signature does not verify: the name of a trusted authority and another key, or a key that is too short.
    BadSignature,
    /// The certificate is refused for another reason.
    Certificate(&'a dyn Display),
    /// The peer has no certificate.
    NoCertificate,
    /// The peer wants a certificate of ours, and got none.
    CertificateWanted,
    /// The peer refuses our certificate, or that it got none, with this alert.
    CertificateRefused(&'a dyn Display),
    /// The peer does not speak TLS.
    NotTls,
    /// The peer speaks neither TLS 1.2 nor TLS 1.3.
    TooOld,
    /// No cipher suite, key exchange or type of key is common to both.
    NothingInCommon,
    /// The peer ends the handshake with the alert `handshake_failure`: nothing is common to both, or the peer wants a
    /// certificate of ours.
    HandshakeFailure,
    /// The peer does not know the name that it was asked for.
    UnknownName,
    /// The peer wants a protocol that is agreed upon in the handshake (ALPN).
    NoProtocol,
    /// The peer reports an error of its own.
    InternalError,
    /// Anything else.
    Other(&'a dyn Display),
}

/// The owner of a certificate whose dates are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The peer itself.
    Own,
    /// An authority between the peer and a trusted one. The peer sends its certificate.
    Intermediate,
}

impl<'a> Failure<'a> {
    /// The TLS failure among an error and its causes, if there is one.
    #[must_use]
    pub fn find(error: &'a (dyn Error + 'static)) -> Option<Self> {
        rustls_error(error).map(|error| match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(alert) => Self::of_alert(*alert, error),
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            rustls::Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => Self::TooOld,
            rustls::Error::PeerIncompatible(_)
            | rustls::Error::InvalidMessage(
                InvalidMessage::UnsupportedKeyExchangeAlgorithm(_)
                | InvalidMessage::UnsupportedCurveType
                | InvalidMessage::UnsupportedCompression,
            )
            | rustls::Error::PeerMisbehaved(
                PeerMisbehaved::SelectedUnofferedCipherSuite
                | PeerMisbehaved::SelectedUnofferedKxGroup
                | PeerMisbehaved::SelectedUnusableCipherSuiteForVersion
                | PeerMisbehaved::IllegalHelloRetryRequestWithUnofferedCipherSuite
                | PeerMisbehaved::IllegalHelloRetryRequestWithUnofferedNamedGroup
                | PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme
                | PeerMisbehaved::SignedKxWithWrongAlgorithm,
            ) => Self::NothingInCommon,
            other => Self::Other(other),
        })
    }

    fn of_alert(alert: AlertDescription, error: &'a rustls::Error) -> Self {
        match alert {
            AlertDescription::HandshakeFailure => Self::HandshakeFailure,
            AlertDescription::InsufficientSecurity => Self::NothingInCommon,
            AlertDescription::ProtocolVersion | AlertDescription::InappropriateFallback => Self::TooOld,
            AlertDescription::UnrecognisedName => Self::UnknownName,
            AlertDescription::NoApplicationProtocol => Self::NoProtocol,
            AlertDescription::InternalError => Self::InternalError,
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => Self::CertificateWanted,
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA => Self::CertificateRefused(error),
            _ => Self::Other(error),
        }
    }

    fn of_certificate(error: &'a CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired(Whose::Own, None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(Whose::Own, Some(not_after.as_secs())),
            CertificateError::NotValidYet => Self::NotValidYet(Whose::Own, None),
            CertificateError::NotValidYetContext { not_before, .. } => {
                Self::NotValidYet(Whose::Own, Some(not_before.as_secs()))
            }
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::BadSignature => Self::BadSignature,
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::WeakSignature,
            CertificateError::NotValidForName => Self::WrongName(None),
            CertificateError::NotValidForNameContext { expected, .. } => Self::WrongName(Some(expected.to_str())),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::NotForServers,
            CertificateError::Other(other) => {
                if let Some(dates) = other.0.downcast_ref::<WrongDatesOfIntermediate>() {
                    return match Self::of_certificate(&dates.0) {
                        Self::NotValidYet(_, from) => Self::NotValidYet(Whose::Intermediate, from),
                        Self::Expired(_, since) => Self::Expired(Whose::Intermediate, since),
                        other => other,
                    };
                }
                match other.0.downcast_ref::<webpki::Error>() {
                    Some(webpki::Error::CaUsedAsEndEntity) => Self::Authority,
                    _ => Self::Certificate(other),
                }
            }
            other => Self::Certificate(other),
        }
    }
}

/// The versions, cipher suites and keys that [`client_config`](crate::client_config) accepts.
const ACCEPTED: &str = "TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20; and a key of P-256, P-384, Ed25519 or RSA \
                        (2048 bits or more)";

/// In the words of whoever operates the client. Says no names: the context of a log's line has them.
impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(whose, None) => write!(f, "{whose} has expired"),
            Self::Expired(whose, Some(second)) => write!(f, "{whose} expired on {}", date(*second)),
            Self::NotValidYet(whose, None) => {
                write!(f, "{whose} is not valid yet: check the clock of this machine")
            }
            Self::NotValidYet(whose, Some(second)) => {
                write!(f, "{whose} is not valid before {}: check the clock of this machine", date(*second))
            }
            Self::UnknownIssuer => f.write_str(
                "the server's certificate is signed by an unknown authority: the authority is not among the trusted \
                 ones, or the server does not send its intermediate certificates",
            ),
            Self::WrongName(None) => f.write_str("the server's certificate is not for its name"),
            Self::WrongName(Some(name)) => write!(f, "the server's certificate is not for the name {name}"),
            Self::NotForServers => f.write_str(
                "the server's certificate is not meant for servers: its extended key usage does not allow it",
            ),
            Self::Authority => {
                f.write_str("the server's certificate is that of an authority (CA:TRUE), not of a server")
            }
            Self::WeakSignature => f.write_str(
                "the server's certificate, or one of its authorities, is signed with an algorithm that is not accepted, \
                 such as SHA-1 or P-521",
            ),
            Self::BadSignature => f.write_str(
                "the server's certificate is signed by an unknown authority, or has a key that is too short (RSA under \
                 2048 bits)",
            ),
            Self::NoCertificate => f.write_str("the server has no certificate"),
            Self::Certificate(reason) => write!(f, "the server's certificate is rejected: {reason}"),
            Self::CertificateWanted => f.write_str(
                "the server wants a client certificate, and got none: none is set, or the server does not accept its \
                 type of key",
            ),
            Self::CertificateRefused(alert) => {
                write!(f, "the server refuses our client certificate, or wants one and none is set: {alert}")
            }
            Self::NotTls => f.write_str("the server does not speak TLS on this port"),
            Self::TooOld => f.write_str("the server speaks neither TLS 1.2 nor TLS 1.3"),
            Self::NothingInCommon => write!(
                f,
                "the server and this client have no cipher suite or type of key in common: the server needs {ACCEPTED}"
            ),
            Self::HandshakeFailure => write!(
                f,
                "the server refuses the TLS handshake: it wants a client certificate, or it has no cipher suite or type \
                 of key in common with this client, and needs {ACCEPTED}"
            ),
            Self::UnknownName => f.write_str("the server does not know the name that it was asked for"),
            Self::NoProtocol => f.write_str("the server wants a protocol that this client does not offer (ALPN)"),
            Self::InternalError => {
                f.write_str("the server reports an internal error in the TLS handshake: its log shows the cause")
            }
            Self::Other(reason) => write!(f, "the TLS connection failed: {reason}"),
        }
    }
}

impl Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "the server's certificate",
            Self::Intermediate => "an intermediate certificate that the server sends",
        })
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

/// The day of a second after 1970.
fn date(second: u64) -> String {
    let time = i64::try_from(second).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok());
    time.map_or_else(|| format!("second {second} after 1970"), |time| time.date().to_string())
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
                "the server wants a client certificate, and got none: none is set, or the server does not accept its \
                 type of key",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::UnknownCA),
                "the server refuses our client certificate, or wants one and none is set: received fatal alert: UnknownCA",
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::HandshakeFailure),
                "the server refuses the TLS handshake: it wants a client certificate, or it has no cipher suite or type \
                 of key in common with this client, and needs TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20; \
                 and a key of P-256, P-384, Ed25519 or RSA (2048 bits or more)",
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
