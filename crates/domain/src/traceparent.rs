//! The trace that an event belongs to: the value of `traceparent` in W3C Trace Context.

use std::fmt;

/// The characters of a value of version 00, and the fewest of any version.
const MIN_CHARS: usize = 55;
/// The maximum of characters of a later version, which may add fields.
const MAX_CHARS: usize = 256;
/// The flag `sampled`.
const SAMPLED_FLAG: u8 = 1;

/// The version, the trace's id, the parent's id and the flags, all of them hexadecimal. It is kept as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceparent(Box<str>);

impl Traceparent {
    /// Reads a value. Returns `None` for what is none. Its sender is then treated as one that sent none, as the
    /// standard says.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, more) = text.split_at_checked(MIN_CHARS)?;
        let fields: Vec<_> = head.split('-').collect();
        let [version, trace, parent, flags] = fields[..] else { return None };
        let is_known = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
        let is_set = |id: &str| id.bytes().any(|digit| digit != b'0');
        let ends_well = match version {
            "00" => more.is_empty(),
            "ff" => false,
            _ => more.is_empty() || more.starts_with('-'),
        };
        let is_short = text.len() <= MAX_CHARS && more.bytes().all(|byte| byte.is_ascii_graphic());
        (is_known && is_set(trace) && is_set(parent) && ends_well && is_short).then(|| Self(text.into()))
    }

    /// The value as it came.
    pub const fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace's id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.0.split('-').nth(1).unwrap_or_default()
    }

    /// The value that names a span whose trace is recorded. Neither id may be zero.
    pub fn recorded(trace: u128, span: u64) -> Self {
        Self(format!("00-{trace:032x}-{span:016x}-{SAMPLED_FLAG:02x}").into())
    }

    /// The ids of the trace and of the span that it names.
    pub fn ids(&self) -> (u128, u64) {
        let span = self.0.split('-').nth(2).unwrap_or_default();
        let trace = u128::from_str_radix(self.trace_id(), 16).unwrap_or_default();
        (trace, u64::from_str_radix(span, 16).unwrap_or_default())
    }

    /// Whether its sender may have recorded the trace: the flag `sampled`.
    pub fn is_recorded(&self) -> bool {
        let flags = self.0.split('-').nth(3).unwrap_or_default();
        u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & SAMPLED_FLAG == SAMPLED_FLAG)
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a field has this many digits, in lower case.
fn is_hex(field: &str, digits: usize) -> bool {
    field.len() == digits && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_value_is_kept_as_it_came_and_names_its_trace() {
        let read = Traceparent::parse(VALID).unwrap();
        assert_eq!((read.as_str(), read.trace_id()), (VALID, "4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(read.to_string(), VALID);
    }

    #[test]
    fn ids_and_the_flag_are_read_and_written_alike() {
        let read = Traceparent::parse(VALID).unwrap();
        let (trace, span) = read.ids();
        assert_eq!((trace, span), (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7));
        assert_eq!(Traceparent::recorded(trace, span), read);
        for (flags, recorded) in [("00", false), ("01", true), ("02", false), ("03", true), ("ff", true)] {
            let read = Traceparent::parse(&VALID.replace("-01", &format!("-{flags}"))).unwrap();
            assert_eq!(read.is_recorded(), recorded, "{flags}");
        }
        let later = Traceparent::parse(&format!("{}-more", VALID.replacen("00", "cc", 1))).unwrap();
        assert!(later.is_recorded() && later.ids() == (trace, span));
    }

    #[test]
    fn a_later_version_may_have_more_after_a_dash() {
        let later = VALID.replacen("00", "cc", 1);
        let longest = format!("{later}-{}", "x".repeat(MAX_CHARS - MIN_CHARS - 1));
        for good in [later.clone(), format!("{later}-what-the-future-brings"), format!("{later}-"), longest.clone()] {
            assert_eq!(Traceparent::parse(&good).map(|read| read.to_string()), Some(good));
        }
        for more in [".what-the-future-brings", "x", "-a b", "-a\n", "-\u{7f}", "-\u{e9}"] {
            assert_eq!(Traceparent::parse(&format!("{later}{more}")), None, "{more:?}");
        }
        assert_eq!(Traceparent::parse(&format!("{longest}x")), None, "too long");
    }

    #[test]
    fn what_the_standard_calls_invalid_is_none() {
        let digits = |from: &str, to: &str| VALID.replace(from, to);
        for bad in [
            String::new(),
            VALID[1..].to_owned(),
            VALID[..MIN_CHARS - 1].to_owned(),
            format!("{VALID}0"),
            format!("{VALID}-"),
            format!("{VALID}-more"),
            format!(" {VALID}"),
            format!("{VALID} "),
            VALID.to_uppercase(),
            VALID.replacen("00", "ff", 1),
            VALID.replacen("00", "0g", 1),
            digits("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            digits("00f067aa0ba902b7", &"0".repeat(16)),
            digits("4bf92f35", "4bf92f3x"),
            digits("00f067aa", "00f067a "),
            digits("-01", "-0z"),
            digits("-", "_"),
            // Fields of other lengths with the right sum, and a character that the fields' end would split.
            digits("4736-00", "473-600"),
            format!("{}\u{e9}", &VALID[..MIN_CHARS - 1]),
        ] {
            assert_eq!(Traceparent::parse(&bad), None, "{bad:?}");
        }
    }
}
