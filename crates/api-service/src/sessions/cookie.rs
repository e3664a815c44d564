//! The cookie `sessionid`.

use std::collections::HashSet;

use actix_web::http::header::{COOKIE, HeaderMap};

pub(crate) const COOKIE_NAME: &str = "sessionid";

/// Returns the session ids of a request: the distinct values of all cookies of that name, in the order in which they
/// came. A browser sends several if their paths or domains differ, and does not show which is which. An empty value is
/// no id, nor is one that is not UTF-8. Values are used literally: quotes and percent signs have no meaning.
pub(crate) fn session_ids(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    let pairs = headers.get_all(COOKIE).flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    let values = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        (name.trim_ascii() == COOKIE_NAME.as_bytes()).then(|| value[1..].trim_ascii())
    });
    let ids = values.filter_map(|value| std::str::from_utf8(value).ok()).filter(|id| !id.is_empty());
    ids.filter(move |id| seen.insert(*id))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn ids(cookies: &[&[u8]]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, HeaderValue::from_bytes(cookie).unwrap());
        }
        session_ids(&headers).map(str::to_owned).collect()
    }

    #[test]
    fn a_session_id_is_found_among_all_cookies() {
        for cookies in [
            &[&b"sessionid=abc"[..]][..],
            &[b"theme=dark; sessionid=abc; lang=de"],
            &[b"theme=dark;sessionid=abc"],
            &[b"theme=dark", b"sessionid=abc"],
            &[b"broken; =x; sessionid = abc ;"],
            &[b"odd=\xff\xfe; sessionid=abc"],
            &[b"sessionid=; sessionid=abc"],
            &[b"sessionid=\xff", b"sessionid=abc"],
        ] {
            assert_eq!(ids(cookies), ["abc"], "{cookies:?}");
        }
        assert_eq!(ids(&[b"sessionid=a=b=="]), ["a=b=="]);
        assert_eq!(ids(&[b"sessionid=\"a%20b\""]), ["\"a%20b\""]);
    }

    #[test]
    fn every_distinct_session_id_is_found_in_the_order_of_the_cookies() {
        let cookies: [&[u8]; 2] =
            [b"sessionid=b; sessionid=a; sessionid=b; lang=de", b"sessionid=; sessionid=c; sessionid=a"];
        assert_eq!(ids(&cookies), ["b", "a", "c"]);
    }

    #[test]
    fn other_names_and_empty_values_are_no_session() {
        for cookies in [
            &[][..],
            &[&b""[..]],
            &[b"sessionid"],
            &[b"sessionid="],
            &[b"sessionid=; sessionid= "],
            &[b"SESSIONID=abc"],
            &[b"xsessionid=abc; sessionid2=abc"],
            &[b"sessionid=\xff"],
        ] {
            assert_eq!(ids(cookies), [""; 0], "{cookies:?}");
        }
    }
}
