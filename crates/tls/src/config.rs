//! The client's configuration, and the authorities that it trusts.

use std::sync::Arc;

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::{WantsClientCert, WebPkiServerVerifier},
    pki_types::{CertificateDer, pem, pem::PemObject},
    version::{TLS12, TLS13},
};

use crate::verifier::Verifier;

/// The configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The extra authorities are not well-formed PEM.
    #[error("the extra certificate authorities are not well-formed PEM")]
    Pem(#[source] pem::Error),
    /// The extra authorities hold no certificate.
    #[error("the extra certificate authorities hold no certificate in PEM form")]
    NoCertificate,
    /// One of the extra authorities is not a certificate that can be trusted.
    #[error("certificate {number} of the extra certificate authorities is unusable")]
    Certificate {
        /// Its place in the bundle, counted from one.
        number: usize,
        /// Why it is unusable.
        source: rustls::Error,
    },
    /// The TLS library refused its own settings.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// Makes a client's configuration that trusts Mozilla's authorities and those of `extra_ca_pem`, a PEM bundle.
///
/// TLS 1.2 and 1.3 on ring, without ALPN or a certificate of the client's own, with resumption of sessions. Only the
/// latest 32 hosts have tickets, 8 each: a peer can make a ticket weigh up to 64 KiB.
///
/// # Errors
/// [`TlsError`] if the bundle holds no certificate or one that is unusable, or if TLS cannot be set up.
pub fn client_config(extra_ca_pem: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    let mut roots = public_authorities();
    if let Some(pem) = extra_ca_pem {
        add(&mut roots, pem)?;
    }
    Ok(trusting(roots).map_err(TlsError::Setup)?.with_no_client_auth())
}

/// Mozilla's.
pub(crate) fn public_authorities() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// The beginning of every client's configuration.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    // It refuses what the library's own verifier refuses.
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier(verifier))))
}

pub(crate) fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), TlsError> {
    let mut number = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        number += 1;
        let certificate = certificate.map_err(TlsError::Pem)?;
        roots.add(certificate).map_err(|source| TlsError::Certificate { number, source })?;
    }
    if number == 0 { Err(TlsError::NoCertificate) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_a_usable_certificate_is_refused() {
        assert!(matches!(client_config(Some(b"")), Err(TlsError::NoCertificate)));
        let broken = b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        assert!(matches!(client_config(Some(broken)), Err(TlsError::Pem(_))));
        let hollow = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(client_config(Some(hollow)), Err(TlsError::Certificate { number: 1, .. })));
    }
}
