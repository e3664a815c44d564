//! The files that a client of PostgreSQL or RabbitMQ is given: whom it trusts, and who it is.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

use crate::config::{TlsError, add, public_authorities, trusting};

const NO_PEM: &str = "is not well-formed PEM";
const NO_CERTIFICATE: &str = "holds no certificate in PEM form";
const NO_KEY: &str = "holds no private key in PEM form (PKCS #8, PKCS #1 or SEC 1, without a passphrase)";

/// The files of a client, all PEM. They are read for each configuration, so a replaced file counts from the next one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that are trusted. Without this file, Mozilla's are.
    pub authorities: Option<PathBuf>,
    /// Who the client is, for servers that ask.
    pub identity: Option<IdentityFiles>,
}

/// A client's certificate and its key, which may be in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// The key without a passphrase: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// [`ClientFiles::authorities`].
    Authorities,
    /// [`IdentityFiles::certificate`].
    Certificate,
    /// [`IdentityFiles::key`].
    Key,
    /// That of [`password`].
    Password,
}

/// A file cannot be used. The text names it and says why. It has no source: the errors of the libraries may quote a file,
/// which may be a key.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct FileError {
    /// Which file.
    pub role: Role,
    text: String,
}

impl ClientFiles {
    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the files and makes a configuration without ALPN: TLS 1.2 and 1.3 on ring.
    ///
    /// # Errors
    /// [`FileError`] for the first file that is missing, unreadable or not what it has to be.
    pub fn read(&self) -> Result<ClientConfig, FileError> {
        let roots = match &self.authorities {
            Some(path) => authorities(path)?,
            None => public_authorities(),
        };
        let unusable = |role, path: &Path, error| FileError::new(role, path, format_args!("cannot be used: {error}"));
        let trusted = self.authorities.as_deref().unwrap_or(Path::new(""));
        let builder = trusting(roots).map_err(|error| unusable(Role::Authorities, trusted, error))?;
        let Some(IdentityFiles { certificate, key }) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let (chain, secret) = (chain(certificate)?, secret(key)?);
        builder.with_client_auth_cert(chain, secret).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = certificate.display();
                FileError::new(Role::Key, key, format_args!("does not belong to the certificate in {certificate}"))
            }
            error => unusable(Role::Key, key, error),
        })
    }
}

/// Reads a password from a file. A newline at the end is not part of the password.
///
/// # Errors
/// [`FileError`] for a file that is unreadable, empty or not UTF-8.
pub fn password(path: &Path) -> Result<String, FileError> {
    let failed = |fault| FileError::new(Role::Password, path, fault);
    let text = String::from_utf8(read(Role::Password, path)?).map_err(|_| failed("is not UTF-8 text"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(failed("is empty")),
        password => Ok(password.to_owned()),
    }
}

fn read(role: Role, path: &Path) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(|error| FileError::new(role, path, format_args!("cannot be read: {error}")))
}

fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    let pem = read(Role::Authorities, path)?;
    add(&mut roots, &pem).map_err(|error| {
        let fault = match error {
            TlsError::Pem(_) => NO_PEM.to_owned(),
            TlsError::NoCertificate => NO_CERTIFICATE.to_owned(),
            TlsError::Certificate { number, .. } => format!("cannot be used: certificate {number} is invalid"),
            TlsError::Setup(error) => format!("cannot be used: {error}"),
        };
        FileError::new(Role::Authorities, path, fault)
    })?;
    Ok(roots)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let pem = read(Role::Certificate, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(FileError::new(Role::Certificate, path, NO_CERTIFICATE)),
        chain => chain.map_err(|_| FileError::new(Role::Certificate, path, NO_PEM)),
    }
}

fn secret(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(&read(Role::Key, path)?).map_err(|error| {
        let fault = match error {
            pem::Error::NoItemsFound => NO_KEY,
            _ => NO_PEM,
        };
        FileError::new(Role::Key, path, fault)
    })
}

impl FileError {
    /// `fault` follows the file's name.
    fn new(role: Role, path: &Path, fault: impl Display) -> Self {
        Self { role, text: format!("{} {fault}", path.display()) }
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};

    use super::*;

    /// A folder of this process alone, with the files of a good client.
    struct Folder(PathBuf);

    impl Folder {
        fn of(test: &str) -> (Self, ClientFiles) {
            let folder = Self(std::env::temp_dir().join(format!("tls-files-{}-{test}", std::process::id())));
            fs::create_dir_all(&folder.0).unwrap();
            let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a".to_owned()]).unwrap();
            let certificate = folder.with("certificate.pem", &cert.pem());
            let key = folder.with("key.pem", &signing_key.serialize_pem());
            let authorities = Some(certificate.clone());
            (folder, ClientFiles { authorities, identity: Some(IdentityFiles { certificate, key }) })
        }

        fn with(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The ECPrivateKey inside of a key in PKCS #8, as SEC 1 has it in PEM.
    fn sec1(key: &KeyPair) -> String {
        let der = key.serialize_der();
        let begin = der.windows(5).position(|window| window == [2, 1, 1, 4, 32]).unwrap() - 2;
        let (tag, inner) = (der[begin], &der[begin..]);
        assert_eq!(tag, 0x30);
        let base64 = STANDARD.encode(inner);
        format!("-----BEGIN EC PRIVATE KEY-----\n{base64}\n-----END EC PRIVATE KEY-----\n")
    }

    #[test]
    fn a_key_may_be_pkcs8_or_sec1_and_in_the_certificates_file() {
        let (folder, mut files) = Folder::of("good");
        files.read().unwrap();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a".to_owned()]).unwrap();
        let both = folder.with("both.pem", &format!("{}{}", sec1(&signing_key), cert.pem()));
        files.identity = Some(IdentityFiles { certificate: both.clone(), key: both });
        files.read().unwrap();
        ClientFiles::default().read().unwrap();
    }

    #[test]
    fn a_password_is_the_files_text_without_the_newline_at_its_end() {
        let (folder, _) = Folder::of("password");
        for (text, expected) in
            [("correct-horse", "correct-horse"), (" a b \n", " a b "), ("a\r\n", "a"), ("a\nb\n\n", "a\nb")]
        {
            assert_eq!(password(&folder.with("password", text)).unwrap(), expected, "{text:?}");
        }
        let binary = folder.with("binary", "");
        fs::write(&binary, b"correct-horse\xff").unwrap();
        for (path, words) in [
            (folder.0.join("missing"), "cannot be read: No such file"),
            (folder.0.clone(), "cannot be read: Is a directory"),
            (folder.with("empty", "\n"), "is empty"),
            (binary, "is not UTF-8 text"),
        ] {
            let error = password(&path).unwrap_err();
            assert_eq!(error.role, Role::Password);
            assert_eq!(error.to_string().split_once(words).unwrap().0, format!("{} ", path.display()), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_not_quoted() {
        let (folder, good) = Folder::of("bad");
        let identity = |certificate: &Path, key: &Path| ClientFiles {
            identity: Some(IdentityFiles { certificate: certificate.to_owned(), key: key.to_owned() }),
            ..good.clone()
        };
        let IdentityFiles { certificate, key } = good.identity.as_ref().unwrap();
        let missing = folder.0.join("missing.pem");
        let text = folder.with("text.pem", "correct-horse");
        let broken = "-----BEGIN CERTIFICATE-----\ncorrect-horse?\n-----END CERTIFICATE-----\n";
        let broken = folder.with("broken.pem", broken);
        let other = folder.with("other.pem", &KeyPair::generate().unwrap().serialize_pem());
        let trusts = |path: &Path| ClientFiles { authorities: Some(path.to_owned()), identity: None };
        for (files, role, named, words) in [
            (trusts(&missing), Role::Authorities, &missing, "cannot be read: No such file"),
            (trusts(&folder.0), Role::Authorities, &folder.0, "cannot be read: Is a directory"),
            (trusts(&text), Role::Authorities, &text, "holds no certificate"),
            (trusts(key), Role::Authorities, key, "holds no certificate"),
            (trusts(&broken), Role::Authorities, &broken, "is not well-formed PEM"),
            (identity(&missing, key), Role::Certificate, &missing, "cannot be read"),
            (identity(&text, key), Role::Certificate, &text, "holds no certificate"),
            (identity(certificate, &missing), Role::Key, &missing, "cannot be read"),
            (identity(certificate, certificate), Role::Key, certificate, "holds no private key"),
            (identity(certificate, &other), Role::Key, &other, "does not belong to the certificate in"),
        ] {
            let error = files.read().err().unwrap_or_else(|| panic!("{files:?} is refused"));
            let said = error.to_string();
            assert!(said.contains(words) && said.contains(&named.display().to_string()), "{said}");
            assert_eq!(error.role, role, "{said}");
            assert!(!said.contains("horse"), "{said}");
        }
    }
}
