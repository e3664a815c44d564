//! Why a TLS connection failed: one table from the TLS library's errors to words.

use std::{error::Error, io};

use rustls::{
    AlertDescription as Alert, CertificateError, InvalidMessage as Invalid, PeerIncompatible as Incompatible,
    PeerMisbehaved as Misbehaved,
};
use time::OffsetDateTime;

use crate::verifier::WrongDatesOfIntermediate;

/// The peer of a connection, and so the reader of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The database or the broker: the service's operator reads the words.
    Server,
    /// A webhook's receiver: the webhook's administrator reads the words.
    Receiver,
}

/// Why a TLS connection failed: what is wrong, and what to do or whom to ask for what. A failure that was found has at
/// most 300 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

/// The fault and the remedy. In braces: `{value}`, or a noun of [`NOUNS`].
type Words = (&'static str, &'static str);

/// Nouns of the words, and remedies of their reader: for a server, for a receiver.
const NOUNS: [(&str, &str, &str); 13] = [
    ("{peer}", "the server", "the receiver"),
    ("{ask}", "ask the server's operator", "ask the receiver's operator"),
    ("{url}", "the URL", "the webhook's URL"),
    ("{authority}", "a trusted authority", "a public authority"),
    ("{https}", "TLS", "HTTPS"),
    ("{protocol}", "the protocol of this client", "HTTP/1.1"),
    ("{clock}", "check the clock of this machine, or ", ""),
    ("{trust}", "set the file of its authority, or ", ""),
    ("{identity}", "got none, or one that it does not accept ({value})", "deliveries come without one"),
    ("{identify}", "set one of an authority that the server trusts, with a type of key that it accepts, or ", ""),
    ("{accept}", "demand none", "accept deliveries without one, and to verify their signature instead"),
    ("{versions}", ACCEPTED_VERSIONS, ACCEPTED_VERSIONS),
    ("{keys}", ACCEPTED_KEYS, ACCEPTED_KEYS),
];

/// The versions and cipher suites, and the keys, that [`client_config`](crate::client_config) accepts.
const ACCEPTED_VERSIONS: &str = "TLS 1.3, or TLS 1.2 with ECDHE and AES-GCM or ChaCha20";
const ACCEPTED_KEYS: &str = "a P-256, P-384, Ed25519 or RSA key (2048 bits or more)";

/// The length limit of a value, in characters: a name, or the TLS library's own words.
const MAX_VALUE_CHARS: usize = 120;

impl Failure {
    /// The TLS failure among an error and its causes, if there is one.
    pub fn find(error: &(dyn Error + 'static), peer: Peer) -> Option<Self> {
        rustls_error(error).map(|error| match error {
            rustls::Error::InvalidCertificate(error) => Self::new(fill(of_certificate(error), &value_of(error), peer)),
            error => {
                let words = fill(of_handshake(error), &error.to_string(), peer);
                Self::new(format!("the TLS handshake failed: {words}"))
            }
        })
    }

    /// The failure of a connection that the peer closed in the handshake without an alert.
    pub fn closed(peer: Peer) -> Self {
        let words = (
            "the TLS handshake failed: {peer} closed the connection",
            "{ask} for {versions}, and whether a firewall or a proxy closes it",
        );
        Self::new(fill(words, "", peer))
    }

    /// A failure of which the TLS library knows nothing.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

/// Returns whether the peer does not speak TLS.
pub fn is_not_tls(error: &(dyn Error + 'static)) -> bool {
    matches!(
        rustls_error(error),
        Some(rustls::Error::InvalidMessage(Invalid::InvalidContentType | Invalid::UnknownProtocolVersion))
    )
}

fn of_certificate(error: &CertificateError) -> Words {
    let of_an_authority = "{ask} for a server's certificate of {authority}";
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("{peer}'s own certificate {value}", "{ask} to renew it")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("{peer}'s own certificate {value}", "{clock}{ask} for one that is valid now")
        }
        CertificateError::UnknownIssuer => (
            "the certificate is signed by an unknown authority",
            "{trust}{ask} for one of {authority}, and to send the intermediate certificates with it",
        ),
        // The name of a trusted authority and another key, or a key that is too short.
        CertificateError::BadSignature => (
            "the certificate is signed by an unknown authority, or its RSA key has less than 2048 bits",
            "{ask} for one of {authority} with {keys}",
        ),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => (
            "the certificate, or one of its authorities, is signed with an algorithm that is not accepted, such as SHA-1 \
             or P-521",
            "{ask} for one that is signed with SHA-256 or SHA-384, and P-256, P-384 or RSA (2048 bits or more)",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ("the certificate is not valid for the {value}", "correct {url}, or {ask} for a certificate with this name")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            "the certificate is not meant for servers: its extended key usage does not allow it",
            "{ask} for one that allows server authentication",
        ),
        CertificateError::Other(other) if other.0.is::<WrongDatesOfIntermediate>() => (
            "an intermediate certificate that {peer} sends {value}",
            "{clock}{ask} to send the authority's current one",
        ),
        CertificateError::Other(other) if matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) => {
            ("the certificate is that of an authority (CA:TRUE), not of a server", of_an_authority)
        }
        _ => ("the certificate was rejected: {value}", of_an_authority),
    }
}

fn of_handshake(error: &rustls::Error) -> Words {
    match error {
        rustls::Error::NoCertificatesPresented => {
            ("{peer} has no certificate", "{ask} for a server's certificate of {authority}")
        }
        error if is_not_tls(error) => {
            ("{peer} does not speak TLS on this port", "correct the port in {url}, or {ask} for {https} on this port")
        }
        rustls::Error::AlertReceived(Alert::ProtocolVersion | Alert::InappropriateFallback)
        | rustls::Error::PeerIncompatible(
            Incompatible::ServerDoesNotSupportTls12Or13 | Incompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => ("{peer} speaks neither TLS 1.2 nor TLS 1.3", "{ask} for {versions}"),
        rustls::Error::AlertReceived(Alert::InsufficientSecurity)
        | rustls::Error::PeerIncompatible(_)
        | rustls::Error::InvalidMessage(
            Invalid::UnsupportedKeyExchangeAlgorithm(_)
            | Invalid::UnsupportedCurveType
            | Invalid::UnsupportedCompression,
        )
        | rustls::Error::PeerMisbehaved(
            Misbehaved::SelectedUnofferedCipherSuite
            | Misbehaved::SelectedUnofferedKxGroup
            | Misbehaved::SelectedUnusableCipherSuiteForVersion
            | Misbehaved::IllegalHelloRetryRequestWithUnofferedCipherSuite
            | Misbehaved::IllegalHelloRetryRequestWithUnofferedNamedGroup
            | Misbehaved::SignedHandshakeWithUnadvertisedSigScheme
            | Misbehaved::SignedKxWithWrongAlgorithm,
        ) => (
            "no cipher suite or type of key in common",
            "{ask} for {versions}, and a certificate for this host with {keys}",
        ),
        // Nothing is common to both, or the peer wants a client certificate.
        rustls::Error::AlertReceived(Alert::HandshakeFailure) => (
            "no common cipher suite or key type, or no client certificate",
            "{ask} for {versions}, a certificate for this host with {keys}, and to demand no client certificate",
        ),
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA,
        ) => ("{peer} wants a client certificate, and {identity}", "{identify}{ask} to {accept}"),
        rustls::Error::AlertReceived(Alert::UnrecognisedName) => {
            ("{peer} does not know the host name", "correct {url}, or {ask} for a certificate for this name")
        }
        rustls::Error::AlertReceived(Alert::NoApplicationProtocol) => (
            "{peer} does not accept {protocol}",
            "{ask} to allow {protocol}, also to clients that do not name it (ALPN)",
        ),
        rustls::Error::AlertReceived(Alert::InternalError) => (
            "{peer} reports an internal error",
            "{ask} what {peer}'s log says, and whether it has a certificate for this host name",
        ),
        _ => ("{value}", "{ask} what {peer}'s log says"),
    }
}

/// A row's words for a peer. The remedy of a value that is long stays whole.
fn fill((wrong, remedy): Words, value: &str, peer: Peer) -> String {
    let nouns = NOUNS.iter().map(|&(noun, server, receiver)| match peer {
        Peer::Server => (noun, server),
        Peer::Receiver => (noun, receiver),
    });
    let words = nouns.fold(format!("{wrong}; {remedy}"), |words, (noun, meaning)| words.replace(noun, meaning));
    words.replace("{value}", &value.chars().take(MAX_VALUE_CHARS).collect::<String>())
}

/// The value in the words for a certificate.
fn value_of(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => format!("expired on {}", date(not_after.as_secs())),
        CertificateError::NotValidYet => "is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}", date(not_before.as_secs()))
        }
        CertificateError::NotValidForName => "host's name".to_owned(),
        CertificateError::NotValidForNameContext { expected, .. } => format!("name {}", expected.to_str()),
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(WrongDatesOfIntermediate(dates)) => value_of(dates),
            None => other.to_string(),
        },
        other => other.to_string(),
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
    use std::{sync::Arc, time::Duration};

    use rustls::pki_types::{DnsName, ServerName, UnixTime};

    use super::*;

    #[test]
    fn a_failure_inside_of_io_errors_is_found() {
        let held = |error| io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
        let unknown = held(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(!is_not_tls(&unknown));
        assert!(is_not_tls(&held(rustls::Error::InvalidMessage(Invalid::InvalidContentType))));
        assert!(Failure::find(&unknown, Peer::Server).is_some());
        assert!(Failure::find(&io::Error::from(io::ErrorKind::Other), Peer::Server).is_none());
    }

    /// A failure of each row, whose values are as long as they can be.
    fn failures() -> Vec<rustls::Error> {
        let (time, last) = (UnixTime::now(), UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX)));
        let expired = || CertificateError::ExpiredContext { time, not_after: last };
        let early = || CertificateError::NotValidYetContext { time, not_before: last };
        let other = |error: Arc<dyn Error + Send + Sync>| CertificateError::Other(rustls::OtherError(error));
        let name = ["x".repeat(63).as_str(); 4].join(".")[..253].to_owned();
        let expected = ServerName::DnsName(DnsName::try_from(name).unwrap());
        let certificates = [
            CertificateError::Expired,
            expired(),
            CertificateError::NotValidYet,
            early(),
            other(Arc::new(WrongDatesOfIntermediate(expired()))),
            other(Arc::new(WrongDatesOfIntermediate(early()))),
            CertificateError::UnknownIssuer,
            CertificateError::BadSignature,
            CertificateError::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: Vec::new(),
                supported_algorithms: Vec::new(),
            },
            CertificateError::NotValidForName,
            CertificateError::NotValidForNameContext { expected, presented: Vec::new() },
            CertificateError::InvalidPurpose,
            other(Arc::new(webpki::Error::CaUsedAsEndEntity)),
            other(Arc::new(io::Error::other("x".repeat(1000)))),
        ];
        let alerts = [
            Alert::ProtocolVersion,
            Alert::InsufficientSecurity,
            Alert::HandshakeFailure,
            Alert::UnsupportedCertificate,
            Alert::UnrecognisedName,
            Alert::NoApplicationProtocol,
            Alert::InternalError,
            Alert::AccessDenied,
        ];
        let others = [
            rustls::Error::NoCertificatesPresented,
            rustls::Error::InvalidMessage(Invalid::InvalidContentType),
            rustls::Error::General("x".repeat(1000)),
        ];
        let certificates = certificates.map(rustls::Error::InvalidCertificate);
        certificates.into_iter().chain(alerts.map(rustls::Error::AlertReceived)).chain(others).collect()
    }

    #[test]
    fn each_row_says_what_to_do_and_fits() {
        for (peer, operator) in [(Peer::Server, "the server's operator"), (Peer::Receiver, "the receiver's operator")] {
            let found = failures().into_iter().map(|error| Failure::find(&error, peer).unwrap());
            for failure in found.chain([Failure::closed(peer)]) {
                let (words, length) = (failure.to_string(), failure.0.chars().count());
                assert!(length <= 300 && !words.contains(['{', '}']), "{length}: {words}");
                assert!(words.contains("; ") && words.contains(operator), "{words}");
                let other = if peer == Peer::Server { "receiver" } else { "the server" };
                assert!(!words.contains(other), "{words}");
            }
        }
    }

    #[test]
    fn operators_read_what_is_theirs_to_set() {
        let alert = rustls::Error::AlertReceived;
        let second = UnixTime::since_unix_epoch(Duration::from_secs(86_400));
        for (error, words) in [
            (
                alert(Alert::UnknownCA),
                "the TLS handshake failed: the server wants a client certificate, and got none, or one that it does not \
                 accept (received fatal alert: UnknownCA); set one of an authority that the server trusts, with a type of \
                 key that it accepts, or ask the server's operator to demand none",
            ),
            (
                CertificateError::NotValidYetContext { time: UnixTime::now(), not_before: second }.into(),
                "the server's own certificate is not valid before 1970-01-02; check the clock of this machine, or ask the \
                 server's operator for one that is valid now",
            ),
            (
                CertificateError::UnknownIssuer.into(),
                "the certificate is signed by an unknown authority; set the file of its authority, or ask the server's \
                 operator for one of a trusted authority, and to send the intermediate certificates with it",
            ),
        ] {
            assert_eq!(Failure::find(&error, Peer::Server), Some(Failure::new(words)));
        }
    }
}
