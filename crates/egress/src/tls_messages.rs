//! Failure messages about TLS: what is wrong, and what to ask the receiver's operator for.

use std::borrow::Cow;

use domain::shortened;
use time::OffsetDateTime;
use tls::{Failure, Whose};

use crate::limited::quoted;

/// The versions and cipher suites of [`tls::client_config`].
const VERSIONS: &str = "TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20";

/// The keys that [`tls::client_config`] accepts.
const KEYS: &str = "a P-256, P-384, Ed25519 or RSA key (2048 bits or more)";

/// The maximum of the TLS library's own words in a message, in characters.
const REASON: usize = 120;

/// A message about a failure that the TLS library reports.
pub(crate) fn failed(failure: &Failure<'_>) -> String {
    format!("{}; {}", wrong(failure), remedy(failure))
}

/// A message about a connection that the receiver closed in the handshake without an alert.
pub(crate) fn closed() -> String {
    format!(
        "the TLS handshake failed: the receiver closed the connection; ask the receiver's operator for {VERSIONS}, and \
         whether a firewall or a proxy closes it"
    )
}

fn wrong<'a>(failure: &'a Failure<'_>) -> Cow<'a, str> {
    let handshake = match failure {
        Failure::Expired(whose, None) => return format!("{} has expired", named(*whose)).into(),
        Failure::Expired(whose, Some(second)) => {
            return format!("{} expired on {}", named(*whose), date(*second)).into();
        }
        Failure::NotValidYet(whose, None) => return format!("{} is not valid yet", named(*whose)).into(),
        Failure::NotValidYet(whose, Some(second)) => {
            return format!("{} is not valid before {}", named(*whose), date(*second)).into();
        }
        Failure::UnknownIssuer => return "the certificate is signed by an unknown authority".into(),
        Failure::BadSignature => {
            return "the certificate is signed by an unknown authority, or its RSA key has less than 2048 bits".into();
        }
        Failure::WeakSignature => {
            return "the certificate, or one of its authorities, is signed with an algorithm that is not accepted, such \
                    as SHA-1 or P-521"
                .into();
        }
        Failure::WrongName(None) => return "the certificate is not valid for the host's name".into(),
        Failure::WrongName(Some(name)) => {
            return format!("the certificate is not valid for the name {}", quoted(name)).into();
        }
        Failure::NotForServers => {
            return "the certificate is not meant for servers: its extended key usage does not allow it".into();
        }
        Failure::Authority => return "the certificate is that of an authority (CA:TRUE), not of a server".into(),
        Failure::Certificate(reason) => {
            return format!("the certificate was rejected: {}", shortened(reason, REASON)).into();
        }
        // No certificate was presented that could be refused.
        Failure::CertificateWanted | Failure::CertificateRefused(_) => {
            return "the receiver wants a client certificate, and deliveries come without one".into();
        }
        Failure::NoCertificate => "the receiver has no certificate".into(),
        Failure::NotTls => "the receiver does not speak TLS on this port".into(),
        Failure::TooOld => "the receiver speaks neither TLS 1.2 nor TLS 1.3".into(),
        Failure::NothingInCommon => "no cipher suite or type of key in common".into(),
        Failure::HandshakeFailure => "no common cipher suite or key type, or no client certificate".into(),
        Failure::UnknownName => "the receiver does not know the host name".into(),
        Failure::NoProtocol => "the receiver does not accept HTTP/1.1".into(),
        Failure::InternalError => "the receiver reports an internal error".into(),
        Failure::Other(reason) => shortened(reason, REASON),
    };
    format!("the TLS handshake failed: {handshake}").into()
}

fn remedy(failure: &Failure<'_>) -> Cow<'static, str> {
    match failure {
        Failure::Expired(Whose::Own, _) => "ask the receiver's operator to renew it".into(),
        Failure::NotValidYet(Whose::Own, _) => "ask the receiver's operator for one that is valid now".into(),
        Failure::Expired(Whose::Intermediate, _) | Failure::NotValidYet(Whose::Intermediate, _) => {
            "ask the receiver's operator to send the authority's current one".into()
        }
        Failure::UnknownIssuer => "ask the receiver's operator for one of a public authority, and to send the \
                                   intermediate certificates with it"
            .into(),
        Failure::BadSignature => {
            format!("ask the receiver's operator for one of a public authority with {KEYS}").into()
        }
        Failure::WeakSignature => "ask the receiver's operator for one that is signed with SHA-256 or SHA-384, and \
                                   P-256, P-384 or RSA (2048 bits or more)"
            .into(),
        Failure::WrongName(_) => {
            "correct the webhook's URL, or ask the receiver's operator for a certificate with this name".into()
        }
        Failure::NotForServers => "ask the receiver's operator for one that allows server authentication".into(),
        Failure::Authority | Failure::Certificate(_) | Failure::NoCertificate => {
            "ask the receiver's operator for a server's certificate of a public authority".into()
        }
        Failure::CertificateWanted | Failure::CertificateRefused(_) => {
            "ask the receiver's operator to accept deliveries without one, and to verify their signature instead".into()
        }
        Failure::NotTls => {
            "correct the port in the webhook's URL, or ask the receiver's operator for HTTPS on this port".into()
        }
        Failure::TooOld => format!("ask the receiver's operator for {VERSIONS}").into(),
        Failure::NothingInCommon => {
            format!("ask the receiver's operator for {VERSIONS}, and a certificate for this host with {KEYS}").into()
        }
        Failure::HandshakeFailure => format!(
            "ask the receiver's operator for {VERSIONS}, a certificate for this host with {KEYS}, and to demand no \
             client certificate"
        )
        .into(),
        Failure::UnknownName => {
            "correct the webhook's URL, or ask the receiver's operator for a certificate for this name".into()
        }
        Failure::NoProtocol => {
            "ask the receiver's operator to allow HTTP/1.1, also to clients that do not name it (ALPN)".into()
        }
        Failure::InternalError => "ask the receiver's operator what the receiver's log says, and whether it has a \
                                   certificate for this host name"
            .into(),
        Failure::Other(_) => "ask the receiver's operator what the receiver's log says".into(),
    }
}

const fn named(whose: Whose) -> &'static str {
    match whose {
        Whose::Own => "the receiver's own certificate",
        Whose::Intermediate => "an intermediate certificate that the receiver sends",
    }
}

fn date(second: u64) -> String {
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(second).map_or_else(
        |_| format!("second {second} after 1970"),
        |time| format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limited::TEXT;

    #[test]
    fn each_message_says_whom_to_ask_for_what_and_fits() {
        let long = "x".repeat(1000);
        let failures = [
            Failure::Expired(Whose::Own, None),
            Failure::Expired(Whose::Intermediate, Some(u64::MAX)),
            Failure::NotValidYet(Whose::Own, None),
            Failure::NotValidYet(Whose::Intermediate, Some(u64::MAX)),
            Failure::UnknownIssuer,
            Failure::WrongName(None),
            Failure::WrongName(Some(long.as_str().into())),
            Failure::NotForServers,
            Failure::Authority,
            Failure::WeakSignature,
            Failure::BadSignature,
            Failure::Certificate(&long),
            Failure::NoCertificate,
            Failure::CertificateWanted,
            Failure::CertificateRefused(&long),
            Failure::NotTls,
            Failure::TooOld,
            Failure::NothingInCommon,
            Failure::HandshakeFailure,
            Failure::UnknownName,
            Failure::NoProtocol,
            Failure::InternalError,
            Failure::Other(&long),
        ];
        for message in failures.iter().map(failed).chain([closed()]) {
            let length = message.chars().count();
            assert!(length <= TEXT && message.contains("ask the receiver's operator"), "{length}: {message}");
        }
    }
}
