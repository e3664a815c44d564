//! Repairs the payload of one frame: short strings that are not UTF-8, and tables that are nested too deeply.

/// The largest frame that is repaired, and that the broker may propose: lapin keeps 64 times as much memory for each
/// connection.
pub(super) const MAX_FRAME_BYTES: u32 = 256 * 1024;
/// Stands for a proposal of no limit: what RabbitMQ proposes unless it is configured.
const USUAL_FRAME_BYTES: u32 = 128 * 1024;
/// The maximum depth of nested tables and arrays. lapin needs its thread's stack for each level.
const MAX_DEPTH: usize = 32;
/// Stands for each byte that is not UTF-8.
const REPLACEMENT_BYTE: u8 = b'?';

/// A field of a payload.
#[derive(Clone, Copy)]
enum Field {
    Bytes(usize),
    ShortString,
    Table,
    FrameMax,
}
use Field::{Bytes, FrameMax, ShortString, Table};

/// The properties of a message, in the order of their flags.
const PROPERTIES: [Field; 14] = [
    ShortString, // content type
    ShortString, // content encoding
    Table,
    Bytes(1),    // delivery mode
    Bytes(1),    // priority
    ShortString, // correlation id
    ShortString, // reply to
    ShortString, // expiration
    ShortString, // message id
    Bytes(8),    // timestamp
    ShortString, // type
    ShortString, // user id
    ShortString, // app id
    ShortString, // cluster id
];

/// Repairs the payload of a frame of this type. A payload that ends too early is repaired up to its end.
pub(super) fn repair(kind: u8, payload: &mut [u8]) {
    let mut rest = Rest(payload);
    let _ends_early = if kind == 1 { rest.method() } else { rest.content_header() };
}

/// The bytes that are not repaired yet.
struct Rest<'b>(&'b mut [u8]);

impl<'b> Rest<'b> {
    /// The fields of those methods that carry foreign text: deliveries, returned messages, the reasons of a close.
    fn method(&mut self) -> Option<()> {
        let [_, class, _, method] = self.take(4)? else { return None };
        let parts: &[Field] = match (*class, *method) {
            (10, 30) => &[Bytes(2), FrameMax],
            (10, 50) | (20, 40) => &[Bytes(2), ShortString],
            (10, 60) => &[ShortString],
            (60, 50) => &[Bytes(2), ShortString, ShortString, ShortString],
            (60, 60) => &[ShortString, Bytes(9), ShortString, ShortString],
            (60, 71) => &[Bytes(9), ShortString, ShortString],
            _ => &[],
        };
        parts.iter().try_for_each(|part| self.part(*part))
    }

    fn content_header(&mut self) -> Option<()> {
        let [_class @ .., high, low] = self.take(14)? else { return None };
        let flags = u16::from_be_bytes([*high, *low]);
        let parts = PROPERTIES.iter().enumerate().filter(|(place, _)| flags & (1 << (15 - place)) != 0);
        parts.map(|(_, part)| self.part(*part)).collect()
    }

    fn part(&mut self, part: Field) -> Option<()> {
        match part {
            Bytes(count) => self.take(count).map(drop),
            ShortString => self.short_string(),
            Table => self.table(0),
            FrameMax => {
                let proposed = self.take(4)?;
                let accepted = match u32::from_be_bytes((&*proposed).try_into().ok()?) {
                    0 => USUAL_FRAME_BYTES,
                    bytes => bytes.min(MAX_FRAME_BYTES),
                };
                proposed.copy_from_slice(&accepted.to_be_bytes());
                Some(())
            }
        }
    }

    fn short_string(&mut self) -> Option<()> {
        let length = self.take(1)?[0];
        let mut text = self.take(length.into())?;
        while let Err(error) = std::str::from_utf8(text) {
            let rest = &mut text[error.valid_up_to()..];
            let invalid = error.error_len().unwrap_or(rest.len());
            rest[..invalid].fill(REPLACEMENT_BYTE);
            text = rest;
        }
        Some(())
    }

    /// A table at this depth: names with values.
    fn table(&mut self, depth: usize) -> Option<()> {
        let mut entries = Rest(self.long()?);
        while !entries.0.is_empty() {
            entries.short_string()?;
            entries.value(depth + 1)?;
        }
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let mut entries = Rest(self.long()?);
        while !entries.0.is_empty() {
            entries.value(depth + 1)?;
        }
        Some(())
    }

    /// A value. Its first byte says its type. What is nested too deeply becomes an array of bytes.
    fn value(&mut self, depth: usize) -> Option<()> {
        let tag = self.take(1)?;
        match tag[0] {
            b'F' if depth < MAX_DEPTH => self.table(depth),
            b'A' if depth < MAX_DEPTH => self.array(depth),
            b'F' | b'A' => {
                tag[0] = b'x';
                self.long().map(drop)
            }
            b'S' | b'x' => self.long().map(drop),
            b'V' => Some(()),
            b't' | b'b' | b'B' => self.take(1).map(drop),
            b's' | b'u' | b'U' => self.take(2).map(drop),
            b'i' | b'I' | b'f' => self.take(4).map(drop),
            b'D' => self.take(5).map(drop),
            b'l' | b'L' | b'd' | b'T' => self.take(8).map(drop),
            _ => None,
        }
    }

    /// Bytes that follow their number.
    fn long(&mut self) -> Option<&'b mut [u8]> {
        let length = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        self.take(usize::try_from(length).ok()?)
    }

    fn take(&mut self, count: usize) -> Option<&'b mut [u8]> {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}
