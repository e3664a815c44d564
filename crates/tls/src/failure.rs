//! Why a TLS connection failed.

use std::{borrow::Cow, error::Error, fmt::Display, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

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
            other => Self::Other(other),
        })
    }

    fn of_certificate(error: &'a CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired(None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(Some(not_after.as_secs())),
            CertificateError::NotValidYet => Self::NotValidYet(None),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotValidYet(Some(not_before.as_secs())),
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::NotValidForName => Self::WrongName(None),
            CertificateError::NotValidForNameContext { expected, .. } => Self::WrongName(Some(expected.to_str())),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::NotForServers,
            CertificateError::Other(other) => Self::Certificate(other),
            other => Self::Certificate(other),
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
}
