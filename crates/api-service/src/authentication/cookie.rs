//! The cookie `sessionid`.

use actix_web::http::header::{COOKIE, HeaderMap};

pub(crate) const NAME: &str = "sessionid";

/// The session id of a request. The first cookie of that name in any `Cookie` header counts. An empty id is no id. The
/// value is taken literally: quotes and percent signs have no meaning.
pub(super) fn session_id(headers: &HeaderMap) -> Option<&str> {
    let mut pairs = headers.get_all(COOKIE).flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    let value = pairs.find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        (name.trim_ascii() == NAME.as_bytes()).then(|| value[1..].trim_ascii())
    })?;
    std::str::from_utf8(value).ok().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn id(cookies: &[&[u8]]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, HeaderValue::from_bytes(cookie).unwrap());
        }
        session_id(&headers).map(str::to_owned)
    }

    #[test]
    fn the_first_sessionid_is_found_among_all_cookies() {
        for cookies in [
            &[&b"sessionid=abc"[..]][..],
            &[b"theme=dark; sessionid=abc; lang=de"],
            &[b"theme=dark;sessionid=abc"],
            &[b"theme=dark", b"sessionid=abc"],
            &[b"sessionid=abc; sessionid=other", b"sessionid=third"],
            &[b"broken; =x; sessionid = abc ;"],
            &[b"odd=\xff\xfe; sessionid=abc"],
        ] {
            assert_eq!(id(cookies).as_deref(), Some("abc"), "{cookies:?}");
        }
        assert_eq!(id(&[b"sessionid=a=b=="]).as_deref(), Some("a=b=="));
        assert_eq!(id(&[b"sessionid=\"a%20b\""]).as_deref(), Some("\"a%20b\""));
    }

    #[test]
    fn other_names_and_empty_values_are_no_session() {
        for cookies in [
            &[][..],
            &[&b""[..]],
            &[b"sessionid"],
            &[b"sessionid="],
            &[b"sessionid=; sessionid=abc"],
            &[b"SESSIONID=abc"],
            &[b"xsessionid=abc; sessionid2=abc"],
            &[b"sessionid=\xff"],
        ] {
            assert_eq!(id(cookies), None, "{cookies:?}");
        }
    }
}
