//! Rejects cross-site writes: a browser sends the cookie with every request, even one that another site's page makes.

use actix_web::http::header::{HOST, HeaderMap, HeaderName, ORIGIN, REFERER};
use url::Url;

use crate::problem::ApiError;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Browsers set these headers and no page can change them. A program need not send them. A page can leave out
/// `Referer`, so it counts only for old browsers that send neither of the others. The last line of defence is the
/// body's type: no page can send JSON to another site without a preflight request.
pub(super) fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    if !headers.get_all(FETCH_SITE).all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) {
        return Err(ApiError::CrossSite("Sec-Fetch-Site"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let are_ours = |name| headers.get_all(name).all(|url| url.to_str().is_ok_and(|url| is_same(url, host)));
    if !are_ours(ORIGIN) {
        return Err(ApiError::CrossSite("Origin"));
    }
    let says_nothing = !headers.contains_key(FETCH_SITE) && !headers.contains_key(ORIGIN);
    if says_nothing && !are_ours(REFERER) {
        return Err(ApiError::CrossSite("Referer"));
    }
    Ok(())
}

/// Compares host and port. The scheme does not count: a proxy in front may terminate TLS.
fn is_same(origin: &str, host: &str) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    let Ok(own) = Url::parse(&format!("{}://{host}", origin.scheme())) else { return false };
    matches!(origin.scheme(), "http" | "https")
        && origin.host().is_some()
        && origin.host() == own.host()
        && origin.port_or_known_default() == own.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(headers: &[(HeaderName, &str)]) -> Option<&'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        match check(&map) {
            Ok(()) => None,
            Err(ApiError::CrossSite(header)) => Some(header),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn an_origin_must_be_the_host() {
        for (origin, host, expected) in [
            ("https://api.example.com", "api.example.com", None),
            ("http://api.example.com", "api.example.com", None),
            ("https://API.example.com", "api.EXAMPLE.com", None),
            ("https://api.example.com", "api.example.com:443", None),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", None),
            ("http://[::1]:8080", "[::1]:8080", None),
            ("https://api.example.com:8443", "api.example.com", Some("Origin")),
            ("https://api.example.com", "api.example.com:8080", Some("Origin")),
            ("https://evil.example", "api.example.com", Some("Origin")),
            ("https://api.example.com.evil.example", "api.example.com", Some("Origin")),
            ("chrome-extension://api.example.com", "api.example.com", Some("Origin")),
            ("null", "api.example.com", Some("Origin")),
            ("", "api.example.com", Some("Origin")),
            ("https://api.example.com", "", Some("Origin")),
        ] {
            assert_eq!(refused(&[(ORIGIN, origin), (HOST, host)]), expected, "{origin} {host}");
        }
        let two = [(ORIGIN, "http://a.example"), (ORIGIN, "http://b.example"), (HOST, "a.example")];
        assert_eq!(refused(&two), Some("Origin"));
    }

    #[test]
    fn the_browser_must_not_say_that_it_comes_from_another_site() {
        for (site, expected) in [
            ("same-origin", None),
            ("none", None),
            ("same-site", Some("Sec-Fetch-Site")),
            ("cross-site", Some("Sec-Fetch-Site")),
            ("", Some("Sec-Fetch-Site")),
        ] {
            assert_eq!(refused(&[(FETCH_SITE, site)]), expected, "{site}");
        }
    }

    #[test]
    fn the_page_counts_when_the_browser_says_nothing_else() {
        let own = (HOST, "api.example.com");
        for (page, expected) in [
            ("https://api.example.com/console?a=b", None),
            ("https://evil.example/api.example.com", Some("Referer")),
            ("https://api.example.com@evil.example/", Some("Referer")),
            ("", Some("Referer")),
        ] {
            assert_eq!(refused(&[(REFERER, page), own.clone()]), expected, "{page}");
            let same = [(REFERER, page), own.clone(), (FETCH_SITE, "same-origin")];
            assert_eq!(refused(&same), None, "{page}");
            let origin = [(REFERER, page), own.clone(), (ORIGIN, "https://api.example.com")];
            assert_eq!(refused(&origin), None, "{page}");
        }
    }

    #[test]
    fn a_program_that_sends_none_of_them_passes() {
        assert_eq!(refused(&[(HOST, "api.example.com")]), None);
    }
}
