//! Verifies a server's certificates, and finds whose dates are wrong.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// The TLS library's verifier. Its error about dates does not say of which certificate they are.
#[derive(Debug)]
pub(crate) struct Verifier(pub(crate) Arc<WebPkiServerVerifier>);

/// The certificate of an authority between the server and a trusted one has expired, or is not valid yet.
#[derive(Debug, thiserror::Error)]
#[error("of an intermediate certificate: {0}")]
pub(crate) struct WrongDatesOfIntermediate(pub(crate) CertificateError);

const fn are_wrong_dates(error: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify =
            |intermediates| self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verify(intermediates) {
            // A certificate's own dates are checked before its authority is looked for, which is missing now.
            Err(Error::InvalidCertificate(error)) if are_wrong_dates(&error) => match verify(&[]) {
                Err(Error::InvalidCertificate(own)) if are_wrong_dates(&own) => Err(own.into()),
                _ => Err(CertificateError::Other(OtherError(Arc::new(WrongDatesOfIntermediate(error)))).into()),
            },
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
