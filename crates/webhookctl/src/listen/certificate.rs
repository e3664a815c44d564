//! The development authority, and the certificate that it signs for one run.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use tls::TlsAcceptor;

/// How long a certificate is valid. The authority is for as long as somebody keeps it.
const VALIDITY: Duration = Duration::days(90);

/// An authority that only developers trust: whoever has its folder can sign for any name.
pub(super) struct Authority {
    /// Its certificate.
    pub(super) pem: String,
    /// The file of its certificate.
    pub(super) file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Opens the authority in a folder, or makes it.
    pub(super) fn in_folder(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        let folder = match folder {
            Some(folder) => folder,
            None => own_folder().context("--authority: name a folder for the authority, as HOME is not set")?,
        };
        let (file, key_file) = (folder.join("authority.pem"), folder.join("authority.key"));
        let unusable = || {
            let folder = folder.display();
            format!(
                "--authority {folder}: the authority cannot be read; without that folder a new authority is created"
            )
        };
        if !file.exists() {
            make(&folder, &file, &key_file).with_context(unusable)?;
        }
        let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
        let pem = read(&file).with_context(unusable)?;
        let key = KeyPair::from_pem(&read(&key_file).with_context(unusable)?).with_context(unusable)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).with_context(unusable)?;
        Ok(Self { pem, file: fs::canonicalize(&file).unwrap_or(file), issuer })
    }

    /// A TLS server with a new certificate for `localhost`, both loopback addresses and `host`.
    pub(super) fn acceptor(&self, host: &str) -> anyhow::Result<TlsAcceptor> {
        let names = ["localhost", "127.0.0.1", "::1", host].map(str::to_owned);
        let mut params =
            CertificateParams::new(names).with_context(|| format!("--host {host}: not a name of a server"))?;
        let now = OffsetDateTime::now_utc();
        params.distinguished_name.push(DnType::CommonName, host);
        params.not_before = now - Duration::DAY;
        params.not_after = now + VALIDITY;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().context("no key can be made")?;
        let certificate = params.signed_by(&key, &self.issuer).context("the authority cannot sign")?;
        Ok(tls::acceptor(certificate.der().to_vec(), key.serialize_der())?)
    }
}

fn own_folder() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))?;
    Some(data.join("webhookctl"))
}

/// Writes the certificate last: where it is, the key is there too.
fn make(folder: &Path, file: &Path, key_file: &Path) -> anyhow::Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Development authority of the webhook service");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    write(key_file, &key.serialize_pem(), 0o600)?;
    write(file, &certificate.pem(), 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    Ok(fs::rename(new, path)?)
}
