//! Failure messages for the webhook's administrator.
//!
//! They say what the administrator can act on. They say nothing of what was sent, nor where in a private network a name
//! led. Text that a peer can influence is `limited` where it is written.

use std::{error::Error, io::ErrorKind, time::Duration};

use hyper::StatusCode;
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};
use rustls_pki_types::UnixTime;
use time::OffsetDateTime;

use crate::{
    causes::{find_tls, io_kind},
    connect_error::ConnectError,
    limited::{limited, quoted},
    resolver::LookupError,
};

pub(crate) fn status(status: StatusCode) -> String {
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    format!("the receiver answered {}{reason}", status.as_u16())
}

pub(crate) fn timeout(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => format!("no answer within {} s", limit.as_secs()),
        _ => format!("no answer within {} ms", limit.as_millis()),
    }
}

/// Whether the peer ended the connection.
pub(crate) const fn is_broken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

pub(crate) fn connect(fault: &ConnectError, limit: Duration) -> String {
    match fault {
        ConnectError::InvalidName { host } => format!("{} is not a valid host name", quoted(host)),
        ConnectError::Unresolved { host, source } => unresolved(&quoted(host), *source),
        ConnectError::RefusedHost(refused) => format!("{} ({})", refused.why(), quoted(&refused.host)),
        ConnectError::RefusedPort(refused) => format!("{} ({})", refused.why(), refused.port),
        ConnectError::RefusedLiteral(refused) => refused.to_string(),
        // The same as for a missing name: whoever may write a URL does not learn which internal names there are.
        ConnectError::RefusedName { host, .. } => unresolved(&quoted(host), LookupError::NoAddress),
        ConnectError::Tcp { address, others, source } => {
            let others = if *others == 0 { String::new() } else { format!(" (and {others} other addresses)") };
            match source.kind() {
                ErrorKind::TimedOut => timeout(limit),
                ErrorKind::ConnectionRefused => format!("connection refused by {address}{others}"),
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    format!("{address}{others} is unreachable")
                }
                _ => limited(format_args!("no connection to {address}{others}: {source}")),
            }
        }
        ConnectError::Slow => timeout(limit),
        ConnectError::Tls(error) => {
            let error = error.as_ref() as &(dyn Error + 'static);
            match (find_tls(error), io_kind(error)) {
                (Some(error), _) => tls(error),
                (None, Some(kind)) if is_broken(kind) => {
                    "the TLS handshake failed: the receiver closed the connection".to_owned()
                }
                _ => "the TLS handshake failed".to_owned(),
            }
        }
    }
}

fn unresolved(host: &str, fault: LookupError) -> String {
    match fault {
        LookupError::NotAName => format!("{host} is not a valid host name"),
        LookupError::NoAddress => format!("the host name {host} does not resolve to a public address"),
        LookupError::Failed => format!("the host name {host} does not resolve: its name servers fail"),
        LookupError::Silent => format!("the host name {host} does not resolve: no name server answered in time"),
    }
}

pub(crate) fn tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(fault) => certificate(fault),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the TLS handshake failed: the receiver does not speak TLS on this port".to_owned()
        }
        rustls::Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)
        | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the TLS handshake failed: the receiver speaks neither TLS 1.2 nor TLS 1.3".to_owned()
        }
        other => limited(format_args!("the TLS handshake failed: {other}")),
    }
}

fn certificate(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired => "the certificate has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the certificate expired on {}", date(*not_after))
        }
        CertificateError::NotValidYet => "the certificate is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("the certificate is not valid before {}", date(*not_before))
        }
        CertificateError::UnknownIssuer => "the certificate is signed by an unknown authority".to_owned(),
        CertificateError::NotValidForNameContext { expected, .. } => {
            format!("the certificate is not valid for the name {}", quoted(&expected.to_str()))
        }
        CertificateError::NotValidForName => "the certificate is not valid for the host's name".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not meant for servers: its extended key usage does not allow it".to_owned()
        }
        CertificateError::Other(other) => limited(format_args!("the certificate was rejected: {other}")),
        other => limited(format_args!("the certificate was rejected: {other}")),
    }
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(
        |_| format!("second {seconds} after 1970"),
        |time| format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day()),
    )
}

/// hyper's own error texts are fixed. They hold nothing that the receiver sent.
pub(crate) fn protocol(hyper: Option<&hyper::Error>, io: Option<ErrorKind>) -> String {
    match hyper {
        Some(error) if error.is_parse() => limited(format_args!("the answer is not HTTP/1.1: {error}")),
        Some(error) if error.is_incomplete_message() || io == Some(ErrorKind::UnexpectedEof) => {
            "the receiver closed the connection before it had answered".to_owned()
        }
        _ if io.is_some_and(is_broken) => "the receiver reset the connection before it had answered".to_owned(),
        Some(error) => limited(format_args!("the receiver did not answer: {error}")),
        None => "the receiver did not answer".to_owned(),
    }
}
