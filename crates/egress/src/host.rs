//! The receiver's name from the URL.

use hyper::Uri;
use tls::ServerName;

use crate::connect_error::ConnectError;

/// The name for SNI and for the certificate, without the brackets of an IPv6 literal and without a trailing dot.
pub(crate) fn server_name(uri: &Uri) -> Result<ServerName<'static>, ConnectError> {
    let host = bare_host(uri);
    let name = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::InvalidName { host: host.to_owned() })
}

/// The host of a URL, without the brackets of an IPv6 literal.
pub(crate) fn bare_host(uri: &Uri) -> &str {
    without_brackets(uri.host().unwrap_or_default())
}

/// A host without the brackets of an IPv6 literal.
pub(crate) fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_name_is_the_bare_host() {
        for (uri, expected) in [
            ("https://example.com./x", "example.com"),
            ("https://example.com:8443/", "example.com"),
            ("https://[2001:db8::1]:8443/", "2001:db8::1"),
            ("https://192.0.2.1/", "192.0.2.1"),
        ] {
            assert_eq!(server_name(&Uri::from_static(uri)).unwrap().to_str(), expected, "{uri}");
        }
        assert!(server_name(&Uri::from_static("https://a..b/")).is_err());
    }
}
