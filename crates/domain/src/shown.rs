//! Foreign text for people, on a page or in a terminal.

use std::borrow::Cow;

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, ExtendedPictographic, IndicSyllabicCategory, JoiningType, VariationSelector},
};
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
pub fn is_hidden(c: char) -> bool {
    let is_ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    is_ignorable && !is_joiner(c) && !is_selector(c)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{2800}' | '\u{fff9}'..='\u{fffb}')
}

/// Joiners and non-joiners, and Mongolian's vowel separator: between two characters.
const fn is_joiner(c: char) -> bool {
    matches!(c, '\u{180e}' | '\u{200c}' | '\u{200d}')
}

/// Variation selectors: after the character that they change.
fn is_selector(c: char) -> bool {
    CodePointSetData::new::<VariationSelector>().contains(c)
}

/// Letters of cursive scripts, such as Arabic and Mongolian, and letters and signs of Indic ones, Khmer among them: a joiner
/// beside them changes their shape.
fn is_joinable(c: char) -> bool {
    let joining = CodePointMapData::<JoiningType>::new().get(c);
    let is_cursive = matches!(joining, JoiningType::DualJoining | JoiningType::LeftJoining | JoiningType::RightJoining);
    let is_indic = CodePointMapData::<IndicSyllabicCategory>::new().get(c) != IndicSyllabicCategory::Other;
    // Unicode's table of Indic scripts has digits, hyphens and dashes as well.
    let is_common = matches!(c, '\0'..='\u{8ff}' | '\u{2000}'..='\u{2bff}');
    is_cursive || is_indic && !is_common
}

const fn is_mongolian(c: char) -> bool {
    matches!(c, '\u{1820}'..='\u{18aa}')
}

/// Emoji that others are joined to, and the tones of skin after them.
fn is_emoji(c: char) -> bool {
    CodePointSetData::new::<ExtendedPictographic>().contains(c) || matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// Returns true if a variation selector changes characters such as this one: ideographs, letters of Myanmar and Mongolian,
/// signs and emoji. Below U+0900 there are only the digits and signs that emoji are made of.
fn is_variable(c: char) -> bool {
    !c.is_whitespace() && !is_joiner(c) && !is_selector(c) && (c >= '\u{900}' || "#*0123456789©®".contains(c))
}

/// The first character of a text that nobody sees, and its place, in characters: a [hidden](is_hidden) one, or a joiner or a
/// variation selector that its neighbours do not need. A row of these can spell any text.
pub fn find_hidden(text: &str) -> Option<(usize, char)> {
    // `letter` is the last character that is no selector.
    let (mut before, mut letter) = (' ', ' ');
    let mut chars = text.chars().enumerate().peekable();
    while let Some((place, c)) = chars.next() {
        let after = chars.peek().map_or(' ', |(_, after)| *after);
        let is_needed = match c {
            '\u{180e}' => is_mongolian(letter) && is_mongolian(after),
            '\u{200c}' | '\u{200d}' => {
                let is_joining = is_joinable(letter) || is_joinable(after) || is_emoji(letter) && is_emoji(after);
                is_joining && !is_joiner(letter) && !is_joiner(after)
            }
            _ if is_selector(c) => is_variable(before),
            _ => !is_hidden(c),
        };
        if !is_needed {
            return Some((place, c));
        }
        before = c;
        if !is_selector(c) {
            letter = c;
        }
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
    fn joiners_and_selectors_are_hidden_where_their_neighbours_do_not_need_them() {
        for (text, place, hidden) in [
            ("Or\u{200d}ders", 2, '\u{200d}'),
            ("Or\u{200c}ders", 2, '\u{200c}'),
            ("Orders\u{200d}", 6, '\u{200d}'),
            ("\u{200c}Orders", 0, '\u{200c}'),
            ("e\u{301}\u{200d}", 2, '\u{200d}'),
            ("1\u{200d}2", 1, '\u{200d}'),
            ("a-\u{200d}-b", 2, '\u{200d}'),
            ("שלום\u{200d}", 4, '\u{200d}'),
            ("葛\u{200d}飾", 1, '\u{200d}'),
            ("ه\u{200d}\u{200c}", 1, '\u{200d}'),
            ("ه\u{200d}\u{200d}ه", 1, '\u{200d}'),
            ("ه \u{200d} ه", 2, '\u{200d}'),
            ("\u{1f469}\u{200d}", 1, '\u{200d}'),
            ("\u{1f469}\u{200d}a", 1, '\u{200d}'),
            ("a\u{200d}\u{1f469}", 1, '\u{200d}'),
            ("\u{1f469}\u{200d}\u{200d}\u{1f52c}", 1, '\u{200d}'),
            ("O\u{fe00}r\u{fe00}d\u{fe00}e\u{fe00}r", 1, '\u{fe00}'),
            ("é\u{e0101}", 1, '\u{e0101}'),
            ("e\u{301}\u{fe00}", 2, '\u{fe00}'),
            ("Ж\u{fe0f}", 1, '\u{fe0f}'),
            ("ه\u{fe00}", 1, '\u{fe00}'),
            ("a-\u{fe0f}b", 2, '\u{fe0f}'),
            ("葛\u{fe00}\u{fe01}", 2, '\u{fe01}'),
            ("\u{fe0f}a", 0, '\u{fe0f}'),
            ("葛\u{3000}\u{e0101}", 2, '\u{e0101}'),
            ("ه\u{200d}\u{fe0f}ه", 2, '\u{fe0f}'),
            ("\u{1820}\u{180e}", 1, '\u{180e}'),
            ("\u{180e}\u{1820}", 0, '\u{180e}'),
            ("\u{1820}\u{180e}\u{180e}\u{1820}", 1, '\u{180e}'),
            ("\u{1820}\u{180e}\u{200d}\u{1820}", 1, '\u{180e}'),
            ("\u{1820}\u{200d}\u{180e}\u{1820}", 1, '\u{200d}'),
            ("\u{1820}\u{180e}\u{180b}\u{1820}", 1, '\u{180e}'),
            ("a\u{180e}b", 1, '\u{180e}'),
            ("a\u{2800}b", 1, '\u{2800}'),
            ("a\u{202e}b", 1, '\u{202e}'),
        ] {
            assert_eq!(find_hidden(text), Some((place, hidden)), "{text:?}");
        }
        for seen in [
            "",
            "a b",
            // Persian, within a word, and heh before a blank, at the end, beside a quotation mark and after a vowel sign.
            "می\u{200c}خواهم",
            "سال ۱۴۰۲ ه\u{200d} تهران",
            "ه\u{200d}",
            "«کتاب»\u{200c}ها",
            "خانهٔ\u{200c}ما",
            "جزء\u{200c}ها",
            "PDF\u{200c}ها",
            // Malayalam chillus, khanda ta of Bengali, Sinhala, Devanagari, Kannada, Khmer.
            "അവന്\u{200d}",
            "ന്\u{200d} ര്\u{200d}",
            "হঠাত্\u{200d}",
            "ශ්\u{200d}රී",
            "र्\u{200d}य क्\u{200c}ष",
            "ರ\u{200d}್ಕ",
            "ស៊\u{200c}ី",
            // Mongolian: a vowel separator, also after a letter with a selector, and a joiner beside a blank.
            "\u{182d}\u{1820}\u{1837}\u{180e}\u{1820}",
            "\u{182d}\u{180b}\u{180e}\u{1820}",
            "\u{1820}\u{180b}",
            "\u{1820}\u{180b}\u{200d} \u{1820}",
            // Ideographs, Myanmar, a sign.
            "葛\u{e0100}飾\u{fe00}",
            "\u{1000}\u{fe00}",
            "\u{2295}\u{fe00}",
            // Emoji: a heart on fire, a scientist with a tone of skin, a flag, a key, a trademark.
            "\u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "\u{1f469}\u{1f3fd}\u{200d}\u{1f52c}",
            "\u{1f3f3}\u{fe0f}\u{200d}\u{1f308}",
            "1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3}",
            "Acme®\u{fe0f}",
        ] {
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
        fn nothing_can_be_hidden_between_the_letters_of_a_latin_text(
            text in "[ -\u{24f}]{0,10}",
            odd in "[\u{ad}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2060}\u{fe00}-\u{fe0f}\u{e0100}-\u{e01ef}]",
            place in any::<prop::sample::Index>(),
        ) {
            let text: Vec<_> = text.chars().filter(|c| !"#*0123456789©®\u{ad}".contains(*c)).collect();
            let place = place.index(text.len() + 1);
            let (before, after) = text.split_at(place);
            let odd = odd.chars().next();
            let whole: String = before.iter().chain(&odd).chain(after).collect();
            prop_assert_eq!(find_hidden(&whole), Some(place).zip(odd));
        }

        #[test]
        fn it_is_the_same_json(key in ".*", text in ".*", number in any::<i64>()) {
            let value = serde_json::json!({key.clone(): [text, number, {"a": key}]});
            let shown = indented(&value.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
