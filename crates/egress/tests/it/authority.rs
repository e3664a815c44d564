//! A certificate authority of the test's own.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer},
        sign::{CertifiedKey, SingleCertAndKey},
    },
};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// An acceptor with a certificate for these names.
    pub(crate) fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        self.acceptor_with(names, |_| {})
    }

    /// The same, with a certificate that is odd in some way.
    pub(crate) fn acceptor_with(&self, names: &[&str], oddity: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = params(names);
        oddity(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        acceptor(vec![certificate.der().clone()], &key)
    }

    /// The same, with a certificate that is signed by another authority, which this one has signed.
    pub(crate) fn acceptor_through(&self, names: &[&str], oddity: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let mut between = CertificateParams::default();
        between.distinguished_name.push(DnType::CommonName, "between");
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        oddity(&mut between);
        let between = CertifiedIssuer::signed_by(between, KeyPair::generate().unwrap(), &self.0).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params(names).signed_by(&key, &between).unwrap();
        acceptor(vec![certificate.der().clone(), between.der().clone()], &key)
    }
}

/// An acceptor with a self-signed certificate.
pub(crate) fn self_signed(names: &[&str]) -> TlsAcceptor {
    self_signed_with(names, |_| {})
}

/// The same, with a certificate that is odd in some way.
pub(crate) fn self_signed_with(names: &[&str], oddity: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let mut params = params(names);
    oddity(&mut params);
    acceptor(vec![params.self_signed(&key).unwrap().der().clone()], &key)
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>()).unwrap()
}

fn acceptor(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    // The certificate is not checked against its key, as the client is to meet odd ones.
    let key = CertifiedKey::new(chain, ring::sign::any_supported_type(&key).unwrap());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    TlsAcceptor::from(Arc::new(config))
}
