//! Foreign text for people, on a page or in a terminal.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// The maximum nesting of JSON that is indented.
const MAX_DEPTH: usize = 64;
/// The maximum size of indented JSON: a multiple of its size as it came, and this many bytes.
const MAX_GROWTH_FACTOR: usize = 8;
const EXTRA_BYTES: usize = 16 * 1024;

/// Replaces control characters, but line breaks and tabs, by their pictures, and [hidden](is_hidden) characters by their code
/// points.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => {}
            '\0'..='\u{1f}' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => shown.push('\u{fffd}'),
            c if is_hidden(c) => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
            _ => shown.push(c),
        }
    }
    shown
}

/// Escapes control characters, but line breaks and tabs, and [hidden](is_hidden) characters as JSON does (`\u009b`): a terminal
/// obeys them. Within JSON the text keeps its value.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_hidden(c);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match obeyed(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}"))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a character is invisible, or turns the direction of writing: Unicode's `Default_Ignorable_Code_Point`,
/// separators of lines and paragraphs, marks of annotations, and the blank of Braille. Joiners and variation selectors are
/// not among them: scripts and emoji need them. The tags of the flags of England, Scotland and Wales are: they can spell
/// any text that nobody sees.
pub const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
            | '\u{e01f0}'..='\u{e0fff}'
    )
}

/// Joiners: between two characters.
const fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Variation selectors: after the character that they change.
const fn is_selector(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// The first character of a text that nobody sees: a [hidden](is_hidden) one, or a joiner or variation selector that has
/// nothing to join or to change. A row of these can spell any text.
pub fn find_hidden(text: &str) -> Option<char> {
    let mut before = ' ';
    for c in text.chars().chain([' ']) {
        if is_hidden(c) || is_selector(c) && (before.is_whitespace() || is_selector(before) || is_joiner(before)) {
            return Some(c);
        }
        if is_joiner(c) && (before.is_whitespace() || is_joiner(before)) {
            return Some(c);
        }
        if is_joiner(before) && c.is_whitespace() {
            return Some(before);
        }
        before = c;
    }
    None
}

/// Returns true if nothing of a text is visible.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control() || is_hidden(c) || is_joiner(c) || is_selector(c))
}

/// Puts each member and element of JSON on a line of its own. Every value keeps its digits and escapes. `None` for text that
/// is not JSON, is nested more than 64 deep, or would grow to more than eight times its size and 16 KiB: show it as it came.
pub fn indented(json: &str) -> Option<String> {
    // Not recursive, and so without a limit of depth.
    serde_json::from_str::<IgnoredAny>(json).ok()?;
    let most = json.len().saturating_mul(MAX_GROWTH_FACTOR).saturating_add(EXTRA_BYTES);
    let mut shown = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string) = (0, false);
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // JSON has it in strings only.
            '\\' => {
                shown.push(c);
                shown.extend(rest.next());
            }
            '"' => {
                in_string = !in_string;
                shown.push(c);
            }
            _ if in_string => shown.push(c),
            '{' | '[' => {
                if depth == MAX_DEPTH {
                    return None;
                }
                shown.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    shown.push(close);
                } else {
                    depth += 1;
                    begin_line(&mut shown, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                begin_line(&mut shown, depth);
                shown.push(c);
            }
            ',' => {
                shown.push(c);
                begin_line(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => shown.push(c),
        }
        if shown.len() > most {
            return None;
        }
    }
    Some(shown)
}

fn begin_line(shown: &mut String, depth: usize) {
    shown.push('\n');
    shown.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(visible("a\0b\x1b[31m\u{202e}gpj\r\n\tc"), "a␀b␛[31m⟨U+202E⟩gpj\n\tc");
        assert_eq!(visible("a\u{1}\u{1f}b\u{7f}c\u{80}\u{9f}d"), "a␁␟b␡c\u{fffd}\u{fffd}d");
        assert_eq!(
            visible("\u{200b}\u{2060}\u{feff}\u{3164}\u{2028}\u{e0041}"),
            "⟨U+200B⟩⟨U+2060⟩⟨U+FEFF⟩⟨U+3164⟩⟨U+2028⟩⟨U+E0041⟩"
        );
        assert_eq!(visible("\u{1f469}\u{200d}\u{1f52c} e\u{301}"), "\u{1f469}\u{200d}\u{1f52c} e\u{301}");
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(
            escaped("a\x1b[2J\u{9b}2J\u{202e}\u{e0041}\r\n\tb"),
            "a\\u001b[2J\\u009b2J\\u202e\\udb40\\udc41\\u000d\n\tb"
        );
        assert!(matches!(escaped("é\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_text_that_nobody_can_see_is_blank() {
        let selectors = "\u{fe0f}\u{e0100}\u{180b}";
        for blank in ["", " \u{a0}\u{2003}", "\n\u{85}", "\u{200c}\u{200d}", selectors, "\u{2800}", "\u{3164}\u{ad}"] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for seen in ["a", "\u{200b}a", "\u{2764}\u{fe0f}", "\u{915}\u{301}", "\u{301}"] {
            assert!(!is_blank(seen), "{seen:?}");
        }
    }

    #[test]
    fn joiners_and_selectors_are_hidden_where_they_join_and_change_nothing() {
        for (text, hidden) in [
            ("Orders\u{200d}", '\u{200d}'),
            ("\u{200c}Orders", '\u{200c}'),
            ("a\u{200d}\u{200c}b", '\u{200c}'),
            ("a\u{200d} b", '\u{200d}'),
            ("a\u{fe00}\u{fe01}", '\u{fe01}'),
            ("a \u{e0101}", '\u{e0101}'),
            ("a\u{200d}\u{fe0f}b", '\u{fe0f}'),
            ("a\u{2800}b", '\u{2800}'),
            ("a\u{202e}b", '\u{202e}'),
        ] {
            assert_eq!(find_hidden(text), Some(hidden), "{text:?}");
        }
        let heart_on_fire = "\u{2764}\u{fe0f}\u{200d}\u{1f525}";
        for seen in ["", "a b", "می\u{200c}خواهم", "葛\u{e0100}", "\u{1820}\u{180b}", heart_on_fire] {
            assert_eq!(find_hidden(seen), None, "{seen:?}");
        }
    }

    #[test]
    fn the_ends_of_each_range_of_hidden_characters_are_hidden_and_their_neighbours_are_not() {
        for (first, last) in [
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0xfff0, 0xfffb),
            (0x1_bca0, 0x1_bca3),
            (0x1_d173, 0x1_d17a),
            (0xe_0000, 0xe_00ff),
            (0xe_01f0, 0xe_0fff),
        ] {
            let is = |code| is_hidden(char::from_u32(code).unwrap());
            let found = (is(first - 1), is(first), is(last), is(last + 1));
            assert_eq!(found, (false, true, true, false), "{first:x} to {last:x}");
        }
    }

    #[test]
    fn numbers_and_escapes_stay_as_they_are() {
        let json = r#"{ "a" : 1.10,"b":[1e400 , "x,\"}\\" ],"c":{}, "d":[ ],"e":{"f":null}}"#;
        let shown = "{\n  \"a\": 1.10,\n  \"b\": [\n    1e400,\n    \"x,\\\"}\\\\\"\n  ],\n  \"c\": {},\n  \"d\": [],\n  \"e\": {\n    \"f\": null\n  }\n}";
        assert_eq!(indented(json).as_deref(), Some(shown));
        assert_eq!(indented(shown).as_deref(), Some(shown));
        for other in ["", "{", "[1,]", "{'a': 1}", "[1] 2", &"[".repeat(200)] {
            assert_eq!(indented(other), None, "{other}");
        }
    }

    fn nested(depth: usize, inner: &str) -> String {
        format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn json_nested_deeper_than_64_is_not_indented() {
        assert_eq!(indented(&nested(64, "")).unwrap().lines().count(), 127);
        assert_eq!(indented(&nested(64, "1")).unwrap().lines().count(), 129);
        for deep in [nested(65, ""), nested(65, "1"), nested(5_850, ""), format!("{{\"a\":{}}}", nested(5_850, "1"))] {
            assert_eq!(indented(&deep), None, "{}", deep.len());
        }
        assert_eq!(indented(&format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65))), None);
        // Brackets in a string are no nesting.
        let text = format!("[\n  \"{}\\\"{}\"\n]", "[".repeat(5_850), "{,:".repeat(100));
        assert_eq!(indented(&text).as_deref(), Some(&*text));
    }

    #[test]
    fn indented_json_is_at_most_eight_times_as_long_and_16_kib() {
        let wide = |depth: usize, inner: &str, elements: usize| {
            nested(depth, &format!("{}{inner}", format!("{inner},").repeat(elements)))
        };
        // Deep, with a line of 120 blanks for each element of one byte.
        assert_eq!(indented(&wide(60, "1", 100_000)), None);
        assert_eq!(indented(&wide(60, "[]", 100_000)), None);
        for json in [
            wide(60, "1", 50),
            wide(6, "1", 100_000),
            wide(40, "\"a long element of a list\"", 10_000),
            wide(64, &format!("\"{}\"", "x".repeat(200)), 1_000),
        ] {
            let shown = indented(&json).unwrap();
            assert!(shown.len() <= json.len() * 8 + 16 * 1024, "{} of {}", shown.len(), json.len());
        }
        // A blank brings the limit nearer by eight bytes, a letter of a text by seven.
        let most = |json: &str| json.len() * 8 + 16 * 1024;
        let json = |blanks, letters| {
            let elements = format!("{}\"{}\"", "1,".repeat(200), "x".repeat(letters));
            nested(64, &elements) + &" ".repeat(blanks)
        };
        let blanks = (0..).find(|blanks| indented(&json(*blanks, 0)).is_some()).unwrap();
        let spare = most(&json(blanks, 0)) - indented(&json(blanks, 0)).unwrap().len();
        let longest = json(blanks - spare, spare);
        assert_eq!(indented(&longest).map(|shown| shown.len()), Some(most(&longest)));
    }

    proptest! {
        #[test]
        fn escaped_json_keeps_its_value_and_holds_nothing_that_a_terminal_obeys(text in ".*", odd in "[\u{0}-\u{9f}\u{202e}\u{e0041}]*") {
            let value = serde_json::json!({text: odd});
            let json = value.to_string();
            let shown = escaped(&json);
            prop_assert!(!shown.contains(|c: char| c.is_control() || is_hidden(c)), "{shown}");
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }

        #[test]
        fn it_is_the_same_json(key in ".*", text in ".*", number in any::<i64>()) {
            let value = serde_json::json!({key.clone(): [text, number, {"a": key}]});
            let shown = indented(&value.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
