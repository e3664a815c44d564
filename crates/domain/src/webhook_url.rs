//! The destination of a webhook (specification, section 2.1).

use std::net::{IpAddr, Ipv4Addr};

use url::{Host, Position, Url};

use crate::{
    address::RefusedAddress,
    address_policy::{AddressPolicy, RefusedHost, RefusedPort},
};

/// The maximum length of a host's name in ASCII form, in characters.
const MAX_NAME_CHARS: usize = 253;

/// The maximum length of a name's part between dots, in characters.
const MAX_LABEL_CHARS: usize = 63;

/// An HTTPS URL without credentials, to a host and a port that the operator does not deny. The addresses of its host
/// are checked at connect time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    written: String,
    parsed: Url,
}

/// The violation of a URL, in words for the administrator who wrote it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UrlFault {
    /// Longer than the limit, in characters.
    #[error("must be at most {0} characters long")]
    TooLong(usize),
    /// Not a URL.
    #[error("is not a valid URL: {0}")]
    Malformed(String),
    /// A scheme other than https.
    #[error("must begin with https://")]
    NotHttps,
    /// It has a user name or a password.
    #[error("must not contain a user name or a password")]
    Credentials,
    /// The host is an address that the egress policy refuses.
    #[error("must not point to {}, which is {}", .0.address, .0.fault)]
    Refused(#[source] RefusedAddress),
    /// The host is one that the operator denies.
    #[error("must not point to {:?}: {}", .0.host, .0.why())]
    RefusedHost(#[source] RefusedHost),
    /// The port is not one that the operator allows.
    #[error("must not use port {}: {}", .0.port, .0.why())]
    RefusedPort(#[source] RefusedPort),
}

impl UrlFault {
    /// A stable code, for the API.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "too_long",
            Self::Malformed(_) => "invalid_url",
            Self::NotHttps => "not_https",
            Self::Credentials => "credentials_in_url",
            Self::Refused(_) => "refused_address",
            Self::RefusedHost(_) => "refused_host",
            Self::RefusedPort(_) => "refused_port",
        }
    }
}

impl WebhookUrl {
    /// Reads a URL that is new, as somebody wrote it. Beside what [`parse`](Self::parse) refuses, it refuses hosts that
    /// cannot exist, and what the parser would correct without a word: the deliveries would go elsewhere.
    ///
    /// # Errors
    /// The [`UrlFault`].
    pub fn register(text: &str, limit: usize, address_policy: &AddressPolicy) -> Result<Self, UrlFault> {
        let url = Self::parse(text, limit, address_policy)?;
        let authority = written_authority(text)?;
        if authority.contains('@') {
            return Err(UrlFault::Credentials);
        }
        match url.parsed.host() {
            Some(Host::Domain(name)) => check_name(name).map_err(UrlFault::Malformed)?,
            Some(Host::Ipv4(address)) if authority.split(':').next() != Some(&address.to_string()) => {
                let why = format!("it stands for the address {address}; write the address like that");
                return Err(UrlFault::Malformed(why));
            }
            _ => {}
        }
        Ok(url)
    }

    /// Reads a URL that may have been registered under other rules. Refuses what must never be sent to. `limit` is in
    /// characters.
    ///
    /// # Errors
    /// The [`UrlFault`].
    pub fn parse(text: &str, limit: usize, address_policy: &AddressPolicy) -> Result<Self, UrlFault> {
        if text.chars().count() > limit {
            return Err(UrlFault::TooLong(limit));
        }
        if let Some(odd) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlFault::Malformed(format!("it contains the character {odd:?}")));
        }
        let parsed = Url::parse(text).map_err(|error| UrlFault::Malformed(error.to_string()))?;
        if parsed.scheme() != "https" {
            return Err(UrlFault::NotHttps);
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(UrlFault::Credentials);
        }
        let address = match parsed.host() {
            None => return Err(UrlFault::Malformed("it has no host".to_owned())),
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            Some(Host::Domain(name)) => {
                address_policy.check_host(name).map_err(UrlFault::RefusedHost)?;
                is_localhost(name).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST))
            }
        };
        if let Some(address) = address {
            address_policy.check_address(address).map_err(UrlFault::Refused)?;
        }
        if parsed.port() == Some(0) {
            return Err(UrlFault::Malformed("nothing can be reached at port 0".to_owned()));
        }
        if let Some(port) = parsed.port_or_known_default() {
            address_policy.check_port(port).map_err(UrlFault::RefusedPort)?;
        }
        Ok(Self { written: text.to_owned(), parsed })
    }

    /// The URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// What is asked for: the URL in its normal form, without its fragment.
    pub fn without_fragment(&self) -> &str {
        &self.parsed[..Position::AfterQuery]
    }

    /// The URL in its normal form.
    pub const fn as_url(&self) -> &Url {
        &self.parsed
    }
}

/// Returns whether two URLs have scheme, host and port in common.
pub fn is_same_origin(one: &str, other: &str) -> bool {
    let origin = |url: &str| Url::parse(url).map(|url| url.origin());
    one == other || matches!((origin(one), origin(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns what stands between the two slashes and the path. `Url` corrects several typing errors there without a word,
/// and the deliveries would go elsewhere.
fn written_authority(text: &str) -> Result<&str, UrlFault> {
    let malformed = |why: &str| UrlFault::Malformed(why.to_owned());
    let after_scheme = text.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("https"));
    let (_, rest) = after_scheme.ok_or_else(|| malformed("https: must be followed by two slashes"))?;
    let rest = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
    if rest.contains('\\') {
        return Err(malformed("it contains a backslash; write slashes"));
    }
    let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
    if authority.is_empty() { Err(malformed("it has no host after the two slashes")) } else { Ok(authority) }
}

/// Checks that the DNS and a certificate can hold the name, which is in ASCII form.
fn check_name(name: &str) -> Result<(), String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_NAME_CHARS {
        return Err(format!("its host has {} characters in ASCII form; the maximum is {MAX_NAME_CHARS}", name.len()));
    }
    if let Some(odd) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_.".contains(*c)) {
        return Err(format!("no host contains the character {odd:?}"));
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("its host has an empty part between dots".to_owned()),
            length if length > MAX_LABEL_CHARS => {
                let part = "its host has a part between dots of";
                return Err(format!("{part} {length} characters in ASCII form; the maximum is {MAX_LABEL_CHARS}"));
            }
            _ if label.starts_with('-') || label.ends_with('-') => {
                return Err(format!("the part {label:?} of its host begins or ends with a hyphen"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// RFC 6761: these names always mean loopback.
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> &'static str {
        WebhookUrl::register(text, 100, &AddressPolicy::default()).map_or_else(|fault| fault.code(), |_| "good")
    }

    #[test]
    fn denied_hosts_and_ports_are_refused_in_words_that_name_them() {
        let address_policy = AddressPolicy::default()
            .with_ports("443, 8443".parse().unwrap())
            .without_hosts("internal.example".parse().unwrap());
        let said =
            |text| WebhookUrl::parse(text, 100, &address_policy).map_err(|fault| (fault.code(), fault.to_string()));
        assert!(said("https://internal.example.org/").is_ok());
        assert!(said("https://xinternal.example:8443/").is_ok());
        let words = "must not point to \"a.internal.example.\": deliveries to this host are not allowed";
        assert_eq!(said("https://A.InterNal.EXAMPLE./"), Err(("refused_host", words.to_owned())));
        let words = "must not use port 8080: deliveries to this port are not allowed";
        assert_eq!(said("https://example.com:8080/"), Err(("refused_port", words.to_owned())));
        assert_eq!(said("https://8.8.8.8:25/").unwrap_err().0, "refused_port");
    }

    #[test]
    fn only_https_urls_with_a_public_host_and_without_credentials_are_good() {
        for (text, expected) in [
            ("https://hooks.example.com/in?x=1", "good"),
            ("HTTPS://EXAMPLE.COM:8443", "good"),
            ("https://8.8.8.8/", "good"),
            ("http://example.com/", "not_https"),
            ("ftp://example.com/", "not_https"),
            ("javascript:alert(1)", "not_https"),
            ("example.com/hook", "invalid_url"),
            ("", "invalid_url"),
            ("https://", "invalid_url"),
            ("https:///", "invalid_url"),
            ("https://exa mple.com/", "invalid_url"),
            ("https://example.com/a\nb", "invalid_url"),
            ("https://example.com:99999/", "invalid_url"),
            ("https://example.com:0/", "invalid_url"),
            ("https://user@example.com/", "credentials_in_url"),
            ("https://:secret@example.com/", "credentials_in_url"),
            ("https://@example.com/", "credentials_in_url"),
            ("https://:@example.com/", "credentials_in_url"),
            ("https://127.0.0.1/", "refused_address"),
            ("https://2130706433/", "refused_address"),
            ("https://0x7f.1/", "refused_address"),
            ("https://0177.0.0.1/", "refused_address"),
            ("https://[::1]/", "refused_address"),
            ("https://[::ffff:10.0.0.1]/", "refused_address"),
            ("https://localhost:8443/", "refused_address"),
            ("https://a.LOCALHOST./", "refused_address"),
            ("https://10.0.0.1./", "refused_address"),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
        assert_eq!(fault(&format!("https://example.com/{}", "é".repeat(80))), "good", "100 characters");
        assert_eq!(fault(&format!("https://example.com/{}", "é".repeat(81))), "too_long");
    }

    #[test]
    fn white_space_and_control_characters_are_refused_in_words_that_name_them() {
        for (text, odd) in [
            ("https://example.com/a b", r"' '"),
            (" https://example.com/", r"' '"),
            ("https://example.com/\u{3000}", r"'\u{3000}'"),
            ("https://example.com/\u{1}", r"'\u{1}'"),
            ("https://example.com/a\n", r"'\n'"),
        ] {
            let fault = WebhookUrl::parse(text, 100, &AddressPolicy::default()).unwrap_err();
            assert_eq!(fault, UrlFault::Malformed(format!("it contains the character {odd}")), "{text:?}");
        }
    }

    #[test]
    fn what_the_parser_would_correct_is_refused_in_words_that_say_how_to_write_it() {
        for (text, why) in [
            ("https:example.com/x", "https: must be followed by two slashes"),
            ("https:/example.com/x", "https: must be followed by two slashes"),
            ("HTTPS:\\\\example.com\\x", "https: must be followed by two slashes"),
            ("https:/\\example.com/x", "https: must be followed by two slashes"),
            ("https:example.com/?to=https://a.example", "https: must be followed by two slashes"),
            ("https:///example.com/x", "it has no host after the two slashes"),
            ("https:////example.com/x", "it has no host after the two slashes"),
            ("https://\\example.com/x", "it contains a backslash; write slashes"),
            ("https://example.com\\x", "it contains a backslash; write slashes"),
            ("https://example.com/x\\y", "it contains a backslash; write slashes"),
            ("https://8.8.8/", "it stands for the address 8.8.0.8; write the address like that"),
            ("https://134744072:443/", "it stands for the address 8.8.8.8; write the address like that"),
        ] {
            let fault = WebhookUrl::register(text, 100, &AddressPolicy::default()).unwrap_err();
            assert_eq!(fault, UrlFault::Malformed(why.to_owned()), "{text}");
        }
        for good in
            ["HTTPS://example.com", "https://example.com:/", "https://example.com/?a=\\#\\", "https://[2606::1]:443/"]
        {
            assert_eq!(fault(good), "good", "{good}");
        }
    }

    #[test]
    fn hosts_that_cannot_exist_are_refused_in_words() {
        let label = |length: usize| "a".repeat(length);
        let long = |last| format!("{}.{}.{}.{}", label(63), label(63), label(63), label(last));
        let why = |host: &str| WebhookUrl::register(&format!("https://{host}/"), 1000, &AddressPolicy::default());
        let empty = "its host has an empty part between dots";
        let part = "its host has a part between dots of 64 characters in ASCII form; the maximum is 63";
        let name = "its host has 254 characters in ASCII form; the maximum is 253";
        for (host, expected) in [
            ("a..example", empty),
            (".a.example", empty),
            ("a.example..", empty),
            (".", empty),
            ("a\u{3002}\u{3002}example", empty),
            (&format!("{}.example", label(64)), part),
            (&format!("{}.example", "ü".repeat(58)), part),
            (&long(62), name),
            (&format!("{}.", long(62)), name),
            ("*.example.com", "no host contains the character '*'"),
            ("-a.example", "the part \"-a\" of its host begins or ends with a hyphen"),
            ("a-.example", "the part \"a-\" of its host begins or ends with a hyphen"),
        ] {
            assert_eq!(why(host), Err(UrlFault::Malformed(expected.to_owned())), "{host}");
        }
        for good in [
            "a.example.",
            "my_hooks.a--b.example",
            "x",
            "b\u{fc}cher.example",
            &label(63),
            &long(61),
            &format!("{}.", long(61)),
        ] {
            assert!(why(good).is_ok(), "{good}: {:?}", why(good));
        }
    }

    #[test]
    fn a_url_of_before_is_still_sent_to_if_it_is_safe() {
        let address_policy = AddressPolicy::default();
        for (text, sent_to) in [
            ("https:/example.com\\x", "https://example.com/x"),
            ("https://8.8.8/", "https://8.8.0.8/"),
            ("https://-a..example/", "https://-a..example/"),
            ("https://@example.com/", "https://example.com/"),
        ] {
            assert_eq!(WebhookUrl::parse(text, 100, &address_policy).unwrap().without_fragment(), sent_to);
            assert!(WebhookUrl::register(text, 100, &address_policy).is_err(), "{text}");
        }
        for (text, code) in [
            ("https:/user@example.com/", "credentials_in_url"),
            ("https://127.1/", "refused_address"),
            ("http:/example.com/", "not_https"),
        ] {
            assert_eq!(WebhookUrl::parse(text, 100, &address_policy).unwrap_err().code(), code);
        }
    }

    #[test]
    fn it_reads_back_as_it_was_written() {
        let url = WebhookUrl::parse("https://example.com", 100, &AddressPolicy::default()).unwrap();
        assert_eq!(url.as_str(), "https://example.com");
        assert_eq!(url.as_url().as_str(), "https://example.com/");
    }

    #[test]
    fn a_fragment_is_not_asked_for() {
        let url = WebhookUrl::parse("https://EXAMPLE.com/in?x=1#part", 100, &AddressPolicy::default()).unwrap();
        assert_eq!(url.without_fragment(), "https://example.com/in?x=1");
        assert_eq!(url.as_str(), "https://EXAMPLE.com/in?x=1#part");
    }
}
