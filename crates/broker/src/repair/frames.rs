//! Finds the frames of a connection in chunks of any size.

use crate::repair::payload::{self, MAX_FRAME_BYTES};

/// A frame begins with its type, channel and length.
const HEAD_BYTES: usize = 7;
const METHOD_FRAME: u8 = 1;
const HEADER_FRAME: u8 = 2;

/// The state between two chunks.
pub(super) enum Frames {
    /// The head of a frame, and the number of its bytes that are there.
    Head([u8; HEAD_BYTES], usize),
    /// The number of bytes that pass unchanged: of a body, or a frame's last byte.
    Pass(u64),
    /// A payload begins: the type of its frame, and its size. It is repaired as a whole.
    Payload(u8, usize),
    /// A payload is read before it is passed on: the type of its frame, and its bytes.
    Hold(u8, Held),
}

/// A payload whose bytes come in several chunks.
pub(super) struct Held {
    bytes: Vec<u8>,
    /// The number of bytes that are there.
    read: usize,
    /// The number of bytes that were passed on.
    passed: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self::Head([0; HEAD_BYTES], 0)
    }
}

impl Frames {
    /// Repairs a chunk in place. Returns how many of its bytes can be passed on. The others are held.
    pub(super) fn repair(&mut self, chunk: &mut [u8]) -> usize {
        let mut done = 0;
        while done < chunk.len() {
            let rest = &mut chunk[done..];
            match self {
                Self::Head(head, read) => {
                    let taken = rest.len().min(HEAD_BYTES - *read);
                    head[*read..*read + taken].copy_from_slice(&rest[..taken]);
                    *read += taken;
                    done += taken;
                    if *read == HEAD_BYTES {
                        *self = Self::after(*head);
                    }
                }
                Self::Pass(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    done += taken;
                    if *left == 0 {
                        *self = Self::default();
                    }
                }
                Self::Payload(kind, size) if *size <= rest.len() => {
                    payload::repair(*kind, &mut rest[..*size]);
                    done += *size;
                    *self = Self::Pass(1);
                }
                Self::Payload(kind, size) => {
                    let mut bytes = vec![0; *size];
                    bytes[..rest.len()].copy_from_slice(rest);
                    *self = Self::Hold(*kind, Held { bytes, read: rest.len(), passed: 0 });
                    return done;
                }
                // A held payload is passed on before anything else is read.
                Self::Hold(..) => return done,
            }
        }
        done
    }

    fn after(head: [u8; HEAD_BYTES]) -> Self {
        let [kind, _, _, size @ ..] = head;
        let size = u32::from_be_bytes(size);
        match kind {
            METHOD_FRAME | HEADER_FRAME if (1..=MAX_FRAME_BYTES).contains(&size) => Self::Payload(kind, size as usize),
            _ => Self::Pass(u64::from(size) + 1),
        }
    }

    /// The room for the bytes that a held payload lacks, if one is held.
    pub(super) fn missing(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Hold(_, held) if held.read < held.bytes.len() => Some(&mut held.bytes[held.read..]),
            _ => None,
        }
    }

    /// Counts bytes that were read into the room. Without any, the connection has ended, and the bytes that are there
    /// pass as they are.
    pub(super) fn read(&mut self, count: usize) {
        let Self::Hold(kind, held) = self else { return };
        held.read += count;
        if count == 0 {
            held.bytes.truncate(held.read);
        } else if held.read == held.bytes.len() {
            payload::repair(*kind, &mut held.bytes);
        }
    }

    /// Passes on bytes of a payload that was held and is complete. Returns how many.
    pub(super) fn pass(&mut self, room: &mut [u8]) -> usize {
        let Self::Hold(_, held) = self else { return 0 };
        if held.read < held.bytes.len() {
            return 0;
        }
        let rest = &held.bytes[held.passed..];
        let taken = rest.len().min(room.len());
        room[..taken].copy_from_slice(&rest[..taken]);
        held.passed += taken;
        if held.passed == held.bytes.len() {
            *self = Self::Pass(1);
        }
        taken
    }
}
