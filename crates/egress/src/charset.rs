//! The charset of an answer's body.

use encoding_rs::{Encoding, UTF_8};
use hyper::header::{CONTENT_TYPE, HeaderMap};

/// The charset that an answer's header names, if it is known.
pub(crate) fn named(headers: &HeaderMap) -> Option<&'static Encoding> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    let (_, charset) = value.split_once("charset=")?;
    Encoding::for_label_no_replacement(charset.split(';').next()?.trim_matches(['"', ' ']).as_bytes())
}

/// Writes the beginning of a body in UTF-8 and cuts it to `most` bytes, if it is in another charset: the one of its byte
/// order mark, or else the named one.
pub(crate) fn to_utf8(head: &mut Vec<u8>, named: Option<&'static Encoding>, most: usize) {
    let charset = Encoding::for_bom(head).map(|(charset, _)| charset).or(named);
    if let Some(charset) = charset.filter(|charset| *charset != UTF_8) {
        let text = charset.decode(head).0.into_owned();
        let end = text.char_indices().map(|(at, character)| at + character.len_utf8()).take_while(|end| *end <= most);
        let end = end.last().unwrap_or_default();
        head.splice(.., text.into_bytes().into_iter().take(end));
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn read(content_type: &'static str, body: &[u8]) -> String {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        let mut head = body.to_vec();
        to_utf8(&mut head, named(&headers), 8);
        String::from_utf8_lossy(&head).into_owned()
    }

    #[test]
    fn a_body_in_another_charset_is_decoded_and_cut_at_a_character() {
        for (content_type, body, text) in [
            ("text/plain; charset=ISO-8859-1", &b"f\xfcr"[..], "für"),
            ("text/html;Charset=\"windows-1252\"; a=b", b"\x80 5", "€ 5"),
            ("text/plain; charset=Shift_JIS", b"\x93\xfa\x96{", "日本"),
            ("text/plain; charset=utf-16le", b"o\0k\0", "ok"),
            ("text/plain", b"\xfe\xff\0o\0k", "ok"),
            ("text/plain; charset=iso-8859-1", b"\xfc\xfc\xfc\xfc\xfc", "üüüü"),
            ("text/plain; charset=iso-8859-1", b"1234567\xfc", "1234567"),
            ("text/plain; charset=utf-8", b"f\xc3\xbcr", "für"),
            ("text/plain; charset=unknown", b"f\xfcr", "f\u{fffd}r"),
            ("text/plain; charset=iso-2022-kr", b"as sent", "as sent"),
            ("application/json", b"{}", "{}"),
        ] {
            assert_eq!(read(content_type, body), text, "{content_type}");
        }
    }
}
