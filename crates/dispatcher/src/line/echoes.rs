//! Masks the values of a webhook's own headers in what its receiver sent: a receiver may echo a request, and values are secrets.
//!
//! A value is found as it was sent, or with the backslashes of JSON. An echo that is encoded otherwise, such as in base64, or
//! as the user name of `Basic` credentials, is not found.

use std::{iter, ops::Range};

use domain::ReceiverHeaders;

/// Shorter values are not masked: a text full of them would be unreadable, and would show by its gaps which they are.
const MIN_MASKED_CHARS: usize = 4;
/// The maximum of comparisons of a byte of a text with one value, on average.
const MAX_COMPARISONS: usize = 8;
/// The end of a text that was shortened.
const ELLIPSIS: &[u8] = "…".as_bytes();

/// Masks the values in a text.
pub(super) fn hide_values(text: &mut [u8], headers: &ReceiverHeaders) {
    // All are searched for before any is masked: one value may be a part of another.
    let found: Vec<_> =
        headers.iter().flat_map(|(_, value)| secrets_of(value)).flat_map(|one| find(text, one)).collect();
    for range in found {
        text[range].fill(b'*');
    }
}

/// The secrets in a value: the whole, and what follows the first word, which may be the name of a scheme such as `Bearer`.
/// Each with the length from which its beginning is masked where a text was cut.
fn secrets_of(value: &str) -> impl Iterator<Item = (&str, usize)> {
    let credentials = value.split_once(' ').map(|(scheme, credentials)| (scheme.len() + 1, credentials));
    let scheme = credentials.map_or(0, |(length, _)| length);
    let parts = [(value, scheme + MIN_MASKED_CHARS)].into_iter();
    let parts = parts.chain(credentials.map(|(_, credentials)| (credentials, MIN_MASKED_CHARS)));
    parts.filter(|(part, _)| part.len() >= MIN_MASKED_CHARS)
}

/// Finds a secret, and its beginning where the text was cut. Of a text that is little but repetitions of a beginning, all is
/// found: to compare each place to the end would cost a worker milliseconds.
fn find(text: &[u8], (secret, min_cut): (&str, usize)) -> Vec<Range<usize>> {
    let (mut compared, mut found) = (0, Vec::new());
    for at in 0..text.len() {
        let (chars, length) = begins_with(&text[at..], secret);
        compared += length;
        if compared > MAX_COMPARISONS * text.len() + secret.len() {
            return iter::once(0..text.len()).collect();
        }
        let rest = &text[at + length..];
        let is_cut = rest.is_empty() || rest.starts_with(ELLIPSIS);
        if chars == secret.len() || is_cut && chars >= min_cut {
            found.push(at..at + length);
        }
    }
    found
}

/// The characters of a secret with which a text begins, and their length in bytes. Knows what some write instead of certain
/// characters in URLs, JSON and HTML.
pub(super) fn begins_with(text: &[u8], secret: &str) -> (usize, usize) {
    let (mut chars, mut length) = (0, 0);
    for byte in secret.bytes() {
        let escapes: &[&str] = match byte {
            b'/' => &[r"\/", "%2F", r"\u002f"],
            b'+' => &["%2B", r"\u002b"],
            b'"' => &[r#"\""#, r"\u0022"],
            b'\\' => &[r"\\", r"\u005c"],
            b'=' => &["%3D", r"\u003d"],
            b'&' => &["%26", r"\u0026", "&amp;"],
            b'<' => &["%3C", r"\u003c", "&lt;"],
            b'>' => &["%3E", r"\u003e", "&gt;"],
            b'\'' => &["%27", r"\u0027", "&#39;"],
            _ => &[],
        };
        let rest = &text[length..];
        let begins =
            |escape: &&&str| rest.get(..escape.len()).is_some_and(|text| text.eq_ignore_ascii_case(escape.as_bytes()));
        length += match escapes.iter().find(begins) {
            Some(escape) => escape.len(),
            None if rest.first() == Some(&byte) => 1,
            None => break,
        };
        chars += 1;
    }
    (chars, length)
}

#[cfg(test)]
mod tests {
    use domain::HeaderChange;

    use super::*;

    fn kept(values: &[&str], text: &str) -> String {
        let mut change = HeaderChange::default();
        for (number, value) in values.iter().enumerate() {
            change.add(&format!("X-{number}"), Some(value)).unwrap();
        }
        let mut text = text.as_bytes().to_vec();
        hide_values(&mut text, &ReceiverHeaders::default().changed(&change).unwrap());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_value_is_masked_wherever_it_is() {
        assert_eq!(
            kept(&["k-12345"], "k-12345, again k-12345k-12345 k-1234 5"),
            "*******, again ************** k-1234 5"
        );
        assert_eq!(kept(&[], "k-12345"), "k-12345");
        assert_eq!(kept(&["aaaa"], "aaaaaa"), "******");
    }

    #[test]
    fn a_value_is_masked_as_json_and_html_write_it() {
        assert_eq!(
            kept(&["a=b&c<d>e'f"], r"x a\u003db\u0026c\u003cd\u003ee\u0027f y"),
            format!("x {} y", "*".repeat(36))
        );
        assert_eq!(kept(&["a=b&c<d>e'f"], "x a=b&amp;c&lt;d&gt;e&#39;f y"), format!("x {} y", "*".repeat(25)));
    }

    #[test]
    fn repetitions_of_a_beginning_are_masked_as_a_whole() {
        let text = "/".repeat(1_024);
        assert_eq!(kept(&[&"/".repeat(256)], &text), "*".repeat(1_024));
        assert_eq!(kept(&[&format!("{}a", "/".repeat(255))], &text), "*".repeat(1_024));
    }

    #[test]
    fn credentials_are_masked_without_their_scheme_too() {
        let text = "Bearer abcdefgh; token=abcdefgh; Bearer realm=\"abc\"";
        assert_eq!(kept(&["Bearer abcdefgh"], text), "***************; token=********; Bearer realm=\"abc\"");
        assert_eq!(kept(&["Bearer abcdefgh"], "401 and asks for Bearer"), "401 and asks for Bearer");
    }

    #[test]
    fn a_value_that_begins_another_leaves_nothing_of_it() {
        for values in [["abcd", "abcdefgh"], ["abcdefgh", "abcd"], ["efgh", "abcdefgh"], ["cdef", "abcdefgh"]] {
            assert_eq!(kept(&values, "x abcdefgh y"), "x ******** y", "{values:?}");
        }
        assert_eq!(kept(&["abcdef", "defghi"], "abcdefghi"), "*********");
    }

    #[test]
    fn the_beginning_of_a_value_is_masked_where_a_text_was_cut() {
        assert_eq!(kept(&["abcdefgh"], "x abcd"), "x ****");
        assert_eq!(kept(&["abcdefgh"], "x abcdef…, and abcdef"), "x ******…, and ******");
        assert_eq!(kept(&["abcdefgh"], "abcdef x abc"), "abcdef x abc");
        assert_eq!(kept(&["Bearer abcdefgh"], "x Bearer abcd"), "x ***********");
    }

    #[test]
    fn json_with_backslashes_is_found_and_other_encodings_are_not() {
        assert_eq!(kept(&[r#"a/"b\c"#], r#"{"echo": "a\/\"b\\c"}"#), r#"{"echo": "*********"}"#);
        let base64 = "YWJjZGVmZ2g=";
        assert_eq!(kept(&["abcdefgh"], base64), base64);
    }

    #[test]
    fn a_short_value_stays() {
        assert_eq!(kept(&["abc", "x", "Bearer xyz"], "abc x xyz Bearer xyz"), "abc x xyz **********");
        assert_eq!(kept(&["abcd"], "abcd"), "****");
    }
}
