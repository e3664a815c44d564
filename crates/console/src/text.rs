//! Foreign text and numbers for people.

use domain::visible;
use maud::{Markup, html};
use url::form_urlencoded;

/// Text that somebody else wrote. Its direction stays its own, and what cannot be seen is shown as a symbol.
pub(crate) fn foreign(text: &str) -> Markup {
    html! { bdi { (visible(text)) } }
}

/// The beginning of foreign text that may be long.
pub(crate) fn shortened(text: &str) -> Markup {
    let (shown, is_cut) = shown(text, 300);
    html! { bdi { (shown) @if is_cut { "…" } } }
}

/// The beginning of foreign text as it may be shown, and whether that is not all. As HTML it has at most `most` bytes,
/// so a page stays small, whatever others wrote.
pub(crate) fn shown(text: &str, most: usize) -> (String, bool) {
    let (text, is_cut) = beginning(text, most);
    let visible = visible(text);
    let (kept, is_longer) = beginning(&visible, most);
    (kept.to_owned(), is_cut || is_longer)
}

/// A text that begins with a capital and ends with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

/// A number with thin spaces between thousands.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("\u{202f}")
}

/// A number of things.
pub(crate) fn count(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A count that stopped at `most`.
pub(crate) fn bounded(counted: i64, most: i64, one: &str, many: &str) -> String {
    let shown = u64::try_from(counted).unwrap_or_default();
    let more = if counted >= most { "+" } else { "" };
    format!("{}{more} {}", number(shown), if shown == 1 && more.is_empty() { one } else { many })
}

/// A query string of these names and values, without empty ones.
pub(crate) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish()
}

/// The beginning of a text, and whether that is not all. As HTML it has at most `most` bytes.
pub(crate) fn beginning(text: &str, most: usize) -> (&str, bool) {
    let mut left = most;
    for (place, c) in text.char_indices() {
        let size = match c {
            '"' => "&quot;".len(),
            '&' => "&amp;".len(),
            '<' | '>' => "&lt;".len(),
            c => c.len_utf8(),
        };
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => return (&text[..place], true),
        }
    }
    (text, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_no_markup() {
        assert_eq!(foreign("<b>\u{202e}").into_string(), "<bdi>&lt;b&gt;⟨U+202E⟩</bdi>");
        assert_eq!(foreign("<b>").into_string(), "<bdi>&lt;b&gt;</bdi>");
    }

    #[test]
    fn the_beginning_of_a_text_is_measured_as_html() {
        for text in ["\"", "&", "<", "é", "\u{202e}", "\u{1}", "a<\u{202e}\""] {
            for most in [0, 1, 5, 6, 100] {
                let (beginning, is_cut) = shown(&text.repeat(100), most);
                let written = html! { (beginning) }.into_string();
                assert!(is_cut && written.len() <= most, "{text:?} {most}: {written}");
                assert!(written.len() + 13 > most, "{text:?} {most}: {written}");
            }
        }
        assert_eq!(shown("<é", 6), ("<é".to_owned(), false));
    }

    #[test]
    fn numbers_are_grouped_and_bounded_counts_say_so() {
        for (value, shown) in [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")]
        {
            assert_eq!(number(value), shown);
        }
        assert_eq!(bounded(1, 1_000, "delivery", "deliveries"), "1 delivery");
        assert_eq!(bounded(1_000, 1_000, "delivery", "deliveries"), "1\u{202f}000+ deliveries");
    }
}
