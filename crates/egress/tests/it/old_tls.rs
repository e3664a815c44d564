//! Receivers of OpenSSL whose cipher suites, certificates or demands are not accepted.
//!
//! `openssl` is there wherever PostgreSQL's packages are.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use domain::OutcomeClass::Tls;
use egress::EgressConfig;

use crate::{Client, LONG_TIMEOUT, authority::Authority, config, post};

/// A server in a process of its own, which ends with the value.
struct OpenSsl {
    server: Child,
    port: u16,
    certificate: Vec<u8>,
    folder: PathBuf,
}

impl OpenSsl {
    /// Starts a server with a new self-signed certificate.
    fn start(name: &str, certificate: &str, server: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("egress-openssl-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = Command::new("openssl")
            .args("req -x509 -nodes -keyout key.pem -out certificate.pem -subj /CN=a -days 2".split(' '))
            .args("-addext subjectAltName=IP:127.0.0.1".split(' '))
            .args(certificate.split(' '))
            .current_dir(&folder)
            .output()
            .expect("openssl is there");
        assert!(made.status.success(), "{name}: {made:?}");
        let mut server = Command::new("openssl")
            .args("s_server -accept 127.0.0.1:0 -key key.pem -cert certificate.pem".split(' '))
            .args(server.split(' '))
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok());
        Self {
            port: port.unwrap_or_else(|| panic!("{name}: {:?}", server.wait())),
            server,
            certificate: fs::read(folder.join("certificate.pem")).unwrap(),
            folder,
        }
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const P256: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -addext basicConstraints=CA:FALSE";
const P521: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-521 -addext basicConstraints=CA:FALSE";
const RSA: &str = "-newkey rsa:2048 -addext basicConstraints=CA:FALSE";
const SHORT_RSA: &str = "-newkey rsa:1024 -addext basicConstraints=CA:FALSE";
const SHA1: &str = "-newkey rsa:2048 -sha1 -addext basicConstraints=CA:FALSE";
const AUTHORITY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";

#[tokio::test]
async fn what_openssl_serves_in_an_old_way_says_what_to_ask_for() {
    let handshake_failure =
        "the TLS handshake failed: no common cipher suite or key type, or no client certificate; ask ";
    let too_old = "the TLS handshake failed: the receiver speaks neither TLS 1.2 nor TLS 1.3; ask ";
    let short_key = "the certificate is signed by an unknown authority, or its RSA key has less than 2048 bits; ask ";
    let sha1 = "the certificate, or one of its authorities, is signed with an algorithm that is not accepted, such as \
                SHA-1 or P-521; ask ";
    let authority = "the certificate is that of an authority (CA:TRUE), not of a server; ask ";
    let client_certificate =
        "the TLS handshake failed: the receiver wants a client certificate, and deliveries come without one; ask ";
    for (name, certificate, server, message) in [
        ("key-exchange", RSA, "-tls1_2 -cipher AES128-GCM-SHA256", handshake_failure),
        ("cbc", RSA, "-tls1_2 -cipher ECDHE-RSA-AES128-SHA", handshake_failure),
        ("finite-field", RSA, "-tls1_2 -cipher DHE-RSA-AES128-GCM-SHA256", handshake_failure),
        ("groups", P256, "-tls1_3 -groups P-521", handshake_failure),
        ("p521-1.3", P521, "-tls1_3", handshake_failure),
        ("p521-1.2", P521, "-tls1_2", handshake_failure),
        ("tls-1.1", RSA, "-tls1_1 -cipher DEFAULT@SECLEVEL=0", too_old),
        ("rsa-1024", SHORT_RSA, "-cipher DEFAULT@SECLEVEL=0", short_key),
        ("sha-1", SHA1, "-cipher DEFAULT@SECLEVEL=0", sha1),
        ("authority", AUTHORITY, "-tls1_3", authority),
        ("client-1.3", P256, "-tls1_3 -Verify 1", client_certificate),
        ("client-1.2", P256, "-tls1_2 -Verify 1", handshake_failure),
    ] {
        let openssl = OpenSsl::start(name, certificate, server);
        let extra_ca_pem = Some(openssl.certificate.clone());
        let client = Client::new(EgressConfig { extra_ca_pem, ..config(&Authority::new(), LONG_TIMEOUT) });
        let answer = client.post(post(&format!("https://127.0.0.1:{}/", openssl.port))).await;
        let error = answer.error.unwrap_or_default();
        assert!(answer.class == Tls && error.starts_with(message), "{name}: {:?}: {error}", answer.class);
    }
}
