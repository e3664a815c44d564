//! The server's side, for the receiver that developers try deliveries with.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};
use tokio_rustls::TlsAcceptor;

use crate::TlsError;

/// Makes a server of TLS 1.2 and 1.3 on ring that speaks HTTP/1.1. `certificate` is DER, `key` is PKCS #8 in DER.
///
/// # Errors
/// [`TlsError::Setup`] if they do not belong together.
pub fn acceptor(certificate: Vec<u8>, key: Vec<u8>) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsError::Setup)?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate)], PrivatePkcs8KeyDer::from(key).into())
        .map_err(TlsError::Setup)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
