//! Whatever a receiver, its certificate or its name server says, what is kept of it is short and names the failure.

use domain::{
    AddressPolicy,
    OutcomeClass::{self, Dns, Protocol, Status, Success, Tls},
};
use egress::{EgressConfig, Internal, InternalConfig};
use rcgen::{CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, SanType};

use crate::{
    Client, LONG_TIMEOUT,
    authority::{Authority, self_signed_with},
    config, egress,
    name_server::{NameServer, Say},
    post,
    receiver::Receiver,
};

/// The most characters of an attempt's error, as the README says.
const MAX_ERROR_CHARS: usize = 300;

const LOCAL_ADDRESSES: [&str; 1] = ["127.0.0.1"];

/// Posts, and checks everything that is kept.
async fn check(client: &Client, url: &str, class: OutcomeClass, message: &str) {
    let answer = client.post(post(url)).await;
    let error = answer.error.unwrap_or_default();
    let length = error.chars().count();
    let begin: String = error.chars().take(400).collect();
    assert!(length <= MAX_ERROR_CHARS, "{length} characters for {message:?}: {begin}");
    assert!(answer.class == class && error.contains(message), "{:?}, not {message:?}: {begin}", answer.class);
    assert!(answer.head.len() <= 1024, "{message}: {} bytes", answer.head.len());
}

type Oddity = fn(&mut CertificateParams);

/// Certificates as large as rustls reads them: 64 KiB.
const CERTIFICATES: [(Oddity, &str); 4] = [
    (
        |params| {
            let purpose = |number| ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, u64::MAX >> 1, number]);
            params.extended_key_usages = (0..2000).map(purpose).collect();
        },
        "the certificate is not meant for servers",
    ),
    (
        |params| {
            let name = |number| SanType::DnsName(format!("{number}.{}.example", "a".repeat(30)).try_into().unwrap());
            params.subject_alt_names = (0..1000).map(name).collect();
        },
        "the certificate is not valid for the name 127.0.0.1",
    ),
    (
        |params| {
            let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![7; 40_000]);
            extension.set_criticality(true);
            params.custom_extensions = vec![extension];
        },
        "the certificate was rejected: ",
    ),
    (
        |params| {
            params.distinguished_name.push(DnType::CommonName, "\u{202e}<b>".repeat(6000));
            params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        },
        "the receiver's own certificate expired on 2026-01-02",
    ),
];

#[tokio::test]
async fn certificates_cannot_make_an_error_long() {
    let authority = Authority::new();
    let client = egress(&authority, LONG_TIMEOUT);
    for (oddity, message) in CERTIFICATES {
        let receiver = Receiver::answering(authority.acceptor_with(&LOCAL_ADDRESSES, oddity), "").await;
        check(&client, &receiver.url(), Tls, message).await;
    }
    // The name is both the subject's and the issuer's, which is too much for a handshake.
    let receiver = Receiver::answering(self_signed_with(&LOCAL_ADDRESSES, CERTIFICATES[3].0), "").await;
    check(&client, &receiver.url(), Tls, "the TLS handshake failed: ").await;
}

#[tokio::test]
async fn answers_cannot_make_an_error_long() {
    let (authority, long) = (Authority::new(), "x<\u{7}\u{ff}".repeat(10_000));
    let client = egress(&authority, LONG_TIMEOUT);
    let (digits, body) = ("7".repeat(50_000), "y".repeat(100_000));
    for (answer, class, message) in [
        (format!("HTTP/1.1 503 {}\r\n\r\n", "slow ".repeat(10_000)), Status, "503"),
        (format!("HTTP/1.1 {digits} OK_RESPONSE\r\n\r\n"), Protocol, "the answer is not HTTP/1.1: "),
        (format!("{long}\r\n\r\n"), Protocol, "the answer is not HTTP/1.1: "),
        (format!("HTTP/1.1 503 X\r\nRetry-After: {digits}\r\n\r\n"), Status, "with Retry-After: 7777"),
        (
            format!("HTTP/1.1 410 X\r\nRetry-After: {}\r\n\r\n", "\u{ff}".repeat(20_000)),
            Status,
            "for good, with Retry-After: ",
        ),
        (format!("HTTP/1.1 500 X\r\n{long}: 1\r\n\r\n"), Status, "500"),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: {digits}\r\n\r\n"), Protocol, "the answer is not HTTP/1.1: "),
        (
            format!("HTTP/1.1 404 X\r\nX-Long: {}\r\nContent-Length: 100000\r\n\r\n{body}", "z".repeat(50_000)),
            Status,
            "404",
        ),
        (format!("HTTP/1.1 410 X\r\nTransfer-Encoding: chunked\r\n\r\n{digits}\r\n{body}"), Status, "410"),
        (format!("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1;{body}\r\n{long}"), Success, ""),
    ] {
        let receiver = Receiver::tls(authority.acceptor(&LOCAL_ADDRESSES), move |mut peer| {
            let answer = answer.clone();
            async move {
                peer.request().await;
                peer.send(answer).await;
            }
        })
        .await;
        check(&client, &receiver.url(), class, message).await;
    }
}

#[tokio::test]
async fn names_and_name_servers_cannot_make_an_error_long() {
    let label = "a".repeat(63);
    let longest = [label.as_str(); 3].join(".");
    let target = longest.clone();
    let name_server = NameServer::start(move |name, _| match name.rsplit_once('.').map_or(name, |(_, last)| last) {
        "loop" => Say::Referral(format!("{}.loop", &target)),
        "private" => Say::Alias(format!("{}.example", &target), vec![[10, 0, 0, 1].into(); 8]),
        "broken" => Say::Failure,
        "silent" => Say::Silence,
        _ => Say::NoSuchName,
    })
    .await;
    let (name_servers, address_policy) = (vec![name_server.address()], AddressPolicy::default());
    let denied = address_policy.without_hosts("denied".parse().unwrap());
    let authority = Authority::new();
    let client = Client::new(EgressConfig { name_servers, address_policy: denied, ..config(&authority, LONG_TIMEOUT) });
    for (domain, class, message) in [
        ("loop", Dns, "does not resolve"),
        ("missing", Dns, "does not resolve"),
        ("broken", Dns, "its name servers fail"),
        ("silent", Dns, "no name server answered in time"),
        ("denied", OutcomeClass::RefusedAddress, "deliveries to this host are not allowed"),
    ] {
        check(&client, &format!("https://{longest}.{domain}/"), class, message).await;
    }
}

#[tokio::test]
async fn the_application_cannot_make_an_error_long_either() {
    let authority = Authority::new();
    for (oddity, _) in CERTIFICATES {
        let receiver = Receiver::answering(authority.acceptor_with(&LOCAL_ADDRESSES, oddity), "").await;
        let internal = Internal::new(InternalConfig {
            url: receiver.url(),
            timeout: LONG_TIMEOUT,
            extra_ca_pem: Some(authority.pem().into_bytes()),
            user_agent: "test-agent/1".to_owned(),
            answer_limit: 64 * 1024,
        });
        let error = internal.unwrap().get("cookie", "sessionid=abc").await.unwrap_err();
        let mut told = vec![error.to_string()];
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            told.push(error.to_string());
            cause = error.source();
        }
        let lengths: Vec<_> = told.iter().map(|text| text.chars().count()).collect();
        assert!(lengths.len() == 2 && lengths.iter().all(|length| *length <= MAX_ERROR_CHARS), "{lengths:?}");
        assert!(told[1].contains("certificate"), "{told:?}");
    }
}
