//! A POST.

use bytes::Bytes;
use domain::{ReceiverHeaders, WebhookUrl};
use http_body_util::Full;
use hyper::{
    Method, Request, Uri,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};

use crate::failure::Failure;

/// One POST (specification, section 4.4).
#[derive(Clone)]
pub struct Post {
    /// Its URL.
    pub url: WebhookUrl,
    /// Headers besides `Content-Type: application/json`, `Accept: */*`, `Accept-Encoding: identity`, `User-Agent`,
    /// `Content-Length` and `Host`, which are added. On the wire each word of a name begins with a capital.
    pub headers: Vec<(&'static str, String)>,
    /// The headers that the receiver's administrator has set. All others replace those of the same name.
    pub receiver_headers: ReceiverHeaders,
    /// The body, sent as it is.
    pub body: Bytes,
}

/// The number of headers that are added to a POST's own headers.
const ADDED_HEADERS: usize = 6;

/// Builds the request. The headers that are added replace those of the same name in `post`.
pub(crate) fn build(post: &Post, user_agent: &HeaderValue) -> Result<Request<Full<Bytes>>, Failure> {
    let uri = Uri::try_from(post.url.without_fragment()).map_err(|_| Failure::Unwritable("URL"))?;
    let mut request = Request::new(Full::new(post.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.reserve(post.headers.len() + ADDED_HEADERS);
    for (name, value) in post.receiver_headers.iter() {
        let (name, mut value) = header(name, value)?;
        // Not shown by `Debug`.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    for (name, value) in &post.headers {
        let (name, value) = header(name, value)?;
        headers.insert(name, value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Some firewalls take a request without it for an attack.
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(USER_AGENT, user_agent.clone());
    Ok(request)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Failure::Unwritable("header"))?;
    let value = HeaderValue::from_str(value).map_err(|_| Failure::Unwritable("header"))?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use domain::AddressPolicy;

    use super::*;

    fn target(url: &str) -> String {
        let url = WebhookUrl::parse(url, 2048, &AddressPolicy::default()).unwrap();
        let post = Post { url, headers: Vec::new(), receiver_headers: ReceiverHeaders::default(), body: Bytes::new() };
        build(&post, &HeaderValue::from_static("x")).unwrap().uri().to_string()
    }

    #[test]
    fn every_url_in_its_normal_form_can_be_requested() {
        for (url, expected) in [
            ("https://example.com", "https://example.com/"),
            ("https://example.com/a#part", "https://example.com/a"),
            ("https://example.com/a?b=c&d=%20#e", "https://example.com/a?b=c&d=%20"),
            ("https://b\u{fc}cher.example/\u{fc}", "https://xn--bcher-kva.example/%C3%BC"),
            ("https://8.8.8.8:8443/", "https://8.8.8.8:8443/"),
            ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
            ("https://example.com./", "https://example.com./"),
        ] {
            assert_eq!(target(url), expected);
        }
        let odd: String = (0x21..0x7f).map(char::from).filter(|c| *c != '#').collect();
        let path = odd.replace(['?', '\\'], "");
        target(&format!("https://example.com/{path}?{odd}"));
    }
}
