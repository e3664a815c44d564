//! Foreign text for people, on a page or in a terminal.

use serde::de::IgnoredAny;

/// Replaces control characters, but line breaks and tabs, by their pictures, and characters that turn the direction of
/// writing or have no width by their code points. Joiners stay: scripts and emoji need them.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => {}
            '\0'..='\u{1f}' => shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => shown.push('\u{fffd}'),
            '\u{ad}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => {
                shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c)));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// JSON with a line for each member and element. Every value keeps its digits and escapes. `None` for what is no JSON,
/// or is nested more than 127 deep.
#[must_use]
pub fn indented(json: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(json).ok()?;
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
    fn numbers_and_escapes_stay_as_they_are() {
        let json = r#"{ "a" : 1.10,"b":[1e400 , "x,\"}\\" ],"c":{}, "d":[ ],"e":{"f":null}}"#;
        let shown = "{\n  \"a\": 1.10,\n  \"b\": [\n    1e400,\n    \"x,\\\"}\\\\\"\n  ],\n  \"c\": {},\n  \"d\": [],\n  \"e\": {\n    \"f\": null\n  }\n}";
        assert_eq!(indented(json).as_deref(), Some(shown));
        assert_eq!(indented(shown).as_deref(), Some(shown));
        assert_eq!((indented("{"), indented(&"[".repeat(200))), (None, None));
    }

    proptest! {
        #[test]
        fn it_is_the_same_json(key in ".*", text in ".*", number in any::<i64>()) {
            let value = serde_json::json!({key.clone(): [text, number, {"a": key}]});
            let shown = indented(&value.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
