//! Rejects cross-site writes: a browser sends the cookie with every request, even one that another site's page makes.

use actix_web::http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, REFERER};
use domain::shortened;
use url::Url;

use crate::http::ApiError;

const FETCH_SITE_HEADER: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The characters of a header that a refusal quotes, at most.
const MAX_QUOTED_CHARS: usize = 128;

/// Browsers set these headers and no page can change them. A program need not send them. A page can leave out
/// `Referer`, so it counts only for old browsers that send neither of the others. The last line of defence is the
/// body's type: no page can send JSON to another site without a preflight request.
///
/// A page of this service is one of the request's `Host`, or of `console.public_url`, as a proxy may pass on another
/// host. Under the policy `no-referrer`, which a proxy may add, the browser hides a page's origin from its own site too,
/// as `null`: then `Sec-Fetch-Site` decides alone.
pub(super) fn check(headers: &HeaderMap, public: Option<&Url>) -> Result<(), ApiError> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let is_ours = |site: &&HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if let Some(site) = headers.get_all(FETCH_SITE_HEADER).find(|site| !is_ours(site)) {
        return Err(of_another_site(&text(site)));
    }
    let host = headers.get(HOST).map(text).unwrap_or_default();
    let is_ours = |page: &str| {
        is_same(page, &host)
            || public.is_some_and(|url| Url::parse(page).is_ok_and(|page| page.origin() == url.origin()))
    };
    let is_hidden = |page: &str| page == "null" && headers.contains_key(FETCH_SITE_HEADER);
    let is_foreign = |page: &String| !is_ours(page) && !is_hidden(page);
    let check = |name, header: HeaderName| match headers.get_all(header).map(text).find(is_foreign) {
        Some(page) => {
            let public = public.map_or("which is not set".to_owned(), |url| url.origin().ascii_serialization());
            let ours = format!("of Host, {}, or of console.public_url, {public}", quoted(&host));
            Err(ApiError::CrossSite(name, shortened(page, MAX_QUOTED_CHARS), ours))
        }
        None => Ok(()),
    };
    check("Origin", ORIGIN)?;
    let says_nothing = !headers.contains_key(FETCH_SITE_HEADER) && !headers.contains_key(ORIGIN);
    if says_nothing { check("Referer", REFERER) } else { Ok(()) }
}

/// The refusal of a request that a browser says is of another site.
pub(crate) fn of_another_site(site: &str) -> ApiError {
    ApiError::CrossSite("Sec-Fetch-Site", shortened(site, MAX_QUOTED_CHARS), "same-origin or none".to_owned())
}

fn quoted(host: &str) -> String {
    format!("{:?}", shortened(host, MAX_QUOTED_CHARS))
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
        match checked(headers, None) {
            Ok(()) => None,
            Err(ApiError::CrossSite(header, ..)) => Some(header),
            Err(other) => panic!("{other}"),
        }
    }

    fn checked(headers: &[(HeaderName, &str)], public: Option<&str>) -> Result<(), ApiError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        check(&map, public.map(|url| url.parse().unwrap()).as_ref())
    }

    #[test]
    fn a_page_of_the_public_url_is_ours_whatever_host_a_proxy_passes_on() {
        let public = Some("https://hooks.example.com/");
        let behind = (HOST, "api-service:8080");
        for (header, page, is_ours) in [
            (ORIGIN, "https://hooks.example.com", true),
            (ORIGIN, "https://hooks.example.com:443", true),
            (ORIGIN, "http://api-service:8080", true),
            (ORIGIN, "http://hooks.example.com", false),
            (ORIGIN, "https://hooks.example.com:8443", false),
            (ORIGIN, "https://evil.example", false),
            (REFERER, "https://hooks.example.com/console/register/", true),
            (REFERER, "https://hooks.example.com.evil.example/console/", false),
        ] {
            let answer = checked(&[(header.clone(), page), behind.clone()], public);
            assert_eq!(answer.is_ok(), is_ours, "{header} {page}");
        }
        assert!(checked(&[(FETCH_SITE_HEADER, "same-site"), (ORIGIN, "https://hooks.example.com")], public).is_err());
    }

    #[test]
    fn a_refusal_names_what_was_compared() {
        let origin = [(ORIGIN, "https://hooks.example.com"), (HOST, "api-service:8080")];
        let said = |public| checked(&origin, public).unwrap_err().to_string();
        for (public, named) in [
            (None, "of Host, \"api-service:8080\", or of console.public_url, which is not set"),
            (Some("https://a.example"), "of Host, \"api-service:8080\", or of console.public_url, https://a.example"),
        ] {
            let beginning = format!("the header Origin is \"https://hooks.example.com\" and not {named}, ");
            assert!(said(public).starts_with(&beginning), "{}", said(public));
        }
        let site = checked(&[(FETCH_SITE_HEADER, "cross-site")], None).unwrap_err().to_string();
        assert!(
            site.starts_with("the header Sec-Fetch-Site is \"cross-site\" and not same-origin or none, "),
            "{site}"
        );
        let long = checked(&[(ORIGIN, &"x".repeat(9000)), (HOST, &"y".repeat(9000))], None).unwrap_err().to_string();
        assert!(long.len() < 600, "{long}");
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
            assert_eq!(refused(&[(FETCH_SITE_HEADER, site)]), expected, "{site}");
        }
    }

    #[test]
    fn an_origin_that_the_browser_hides_passes_if_the_browser_calls_the_page_ours() {
        let hidden = [(ORIGIN, "null"), (HOST, "api.example.com")];
        for (site, expected) in [
            (Some("same-origin"), None),
            (Some("same-site"), Some("Sec-Fetch-Site")),
            (Some("cross-site"), Some("Sec-Fetch-Site")),
            (None, Some("Origin")),
        ] {
            let site = site.map(|site| (FETCH_SITE_HEADER, site));
            assert_eq!(refused(&[&hidden[..], site.as_slice()].concat()), expected, "{site:?}");
        }
        let evil = [(ORIGIN, "https://evil.example"), (HOST, "api.example.com"), (FETCH_SITE_HEADER, "same-origin")];
        assert_eq!(refused(&evil), Some("Origin"));
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
            let same = [(REFERER, page), own.clone(), (FETCH_SITE_HEADER, "same-origin")];
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
