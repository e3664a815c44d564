//! The trusted authorities, and the receiver's name from the URL.

use std::sync::Arc;

use hyper::Uri;
use rustls::{
    ClientConfig, RootCertStore,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};

use crate::{EgressError, connect_error::ConnectError};

/// TLS 1.2 and 1.3 on ring, without ALPN, with resumption of sessions. Only the latest 32 hosts have tickets, 8 each: a
/// receiver can make a ticket weigh up to 64 KiB.
pub(crate) fn client_config(extra_ca_pem: Option<&[u8]>) -> Result<ClientConfig, EgressError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = extra_ca_pem {
        add(&mut roots, pem)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(EgressError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), EgressError> {
    let mut number = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        number += 1;
        let certificate = certificate.map_err(EgressError::Pem)?;
        roots.add(certificate).map_err(|source| EgressError::Certificate { number, source })?;
    }
    if number == 0 { Err(EgressError::NoCertificate) } else { Ok(()) }
}

/// The name for SNI and for the certificate, without the brackets of an IPv6 literal and without a trailing dot.
pub(crate) fn server_name(uri: &Uri) -> Result<ServerName<'static>, ConnectError> {
    let host = bare_host(uri);
    let name = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::InvalidName { host: host.to_owned() })
}

/// The host of a URL, without the brackets of an IPv6 literal.
pub(crate) fn bare_host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_name_is_the_bare_host() {
        for (uri, expected) in [
            ("https://example.com./x", "example.com"),
            ("https://example.com:8443/", "example.com"),
            ("https://[2001:db8::1]:8443/", "2001:db8::1"),
            ("https://192.0.2.1/", "192.0.2.1"),
        ] {
            assert_eq!(server_name(&Uri::from_static(uri)).unwrap().to_str(), expected, "{uri}");
        }
        assert!(server_name(&Uri::from_static("https://a..b/")).is_err());
    }

    #[test]
    fn a_bundle_without_a_usable_certificate_is_refused() {
        assert!(matches!(client_config(Some(b"")), Err(EgressError::NoCertificate)));
        let broken = b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        assert!(matches!(client_config(Some(broken)), Err(EgressError::Pem(_))));
        let hollow = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(client_config(Some(hollow)), Err(EgressError::Certificate { number: 1, .. })));
    }
}
