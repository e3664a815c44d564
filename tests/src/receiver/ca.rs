//! A certificate authority for one test.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

/// A certificate authority that lives as long as a test. `WEBHOOKS__EGRESS__EXTRA_CA_FILE` has to name its file.
#[derive(Debug)]
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now, and for long.
    Valid,
    /// Until the end of 2020.
    Expired,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    /// A new authority with a key of its own.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Authority of the webhook tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key can be made");
        let pem = params.self_signed(&key).expect("an authority signs itself").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes certificate and key to `authority.pem` and `authority.key` in a directory, which is made if it is missing:
    /// the form that `webhookctl listen` takes. Returns the certificate's path.
    pub fn write_to(&self, dir: impl AsRef<Path>) -> PathBuf {
        let path = dir.as_ref().join("authority.pem");
        fs::create_dir_all(dir.as_ref()).expect("the directory can be made");
        fs::write(&path, &self.pem).expect("the authority's certificate can be written");
        fs::write(path.with_extension("key"), self.issuer.key().serialize_pem()).expect("its key can be written");
        path
    }

    /// A certificate and its key, both PEM: for servers of these names, and for clients.
    ///
    /// # Panics
    /// When no certificate can be made.
    #[must_use]
    pub fn issue(&self, names: &[&str], validity: Validity) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, "webhooks");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        (certificate.pem(), key.serialize_pem())
    }

    /// A TLS server for `localhost`, `127.0.0.1` and the names directly below `receiver.example` and `example.com`. It uses the ring
    /// provider, whatever providers other features bring in.
    ///
    /// # Panics
    /// When no certificate can be made.
    pub fn acceptor(&self) -> TlsAcceptor {
        let names = ["localhost", "127.0.0.1", "*.receiver.example", "*.example.com"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring has the default versions of TLS")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
                .expect("the certificate belongs to the key");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}
