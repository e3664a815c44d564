//! The beginning of an answer, as it is read from its connection.

/// The length of `HTTP/1.1 200`.
const STATUS_LINE_BYTES: usize = 12;

/// The version, without its minor number, and what stands between it and the status.
const VERSION_PREFIX: &[u8] = b"HTTP/1.";

/// The first bytes that were read since a request began.
#[derive(Default)]
pub(crate) struct StatusLine {
    bytes: [u8; STATUS_LINE_BYTES],
    length: usize,
}

impl StatusLine {
    /// Adds bytes. hyper skips empty lines in front of an answer.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.length == STATUS_LINE_BYTES {
                return;
            }
            if self.length > 0 || !matches!(byte, b'\r' | b'\n') {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
    }

    /// Returns whether an answer has begun, even one that breaks off in its first line. Other bytes are what a receiver
    /// sent too much after an earlier answer.
    pub(crate) fn has_begun(&self) -> bool {
        let length = self.length.min(VERSION_PREFIX.len());
        length > 0 && self.bytes[..length] == VERSION_PREFIX[..length]
    }

    /// Returns whether further bytes may follow the answer, which are not its body: after an answer that has none by its
    /// status (204, 205, 304), whatever the receiver sends; after an interim answer (1xx), the answer itself; after a
    /// 408, the answer to a request that the receiver had not seen yet.
    pub(crate) fn may_be_followed(&self) -> bool {
        matches!(&self.bytes[STATUS_LINE_BYTES - 3..], [b'1', _, _] | b"204" | b"205" | b"304" | b"408")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> StatusLine {
        let mut line = StatusLine::default();
        parts.iter().for_each(|part| line.read(part.as_bytes()));
        line
    }

    #[test]
    fn an_answer_begins_with_its_version_after_empty_lines() {
        for begun in ["H", "HTTP/1", "HTTP/1.1 200 OK", "HTTP/1.0 500", "\r\n\nHTTP/1.1 2", "HTTP/1.9999999999999"] {
            assert!(read(&[begun]).has_begun(), "{begun:?}");
        }
        for other in ["", "\r\n", "{", "Hello", "http/1.1 200 OK", "HTTP/2 200", "\r\n{\"a\": 1}", " HTTP/1.1 200 OK"] {
            assert!(!read(&[other]).has_begun(), "{other:?}");
        }
    }

    #[test]
    fn the_status_is_read_in_any_pieces() {
        for (status, followed) in
            [("100", true), ("103", true), ("200", false), ("204", true), ("205", true), ("304", true), ("408", true)]
        {
            let line = format!("\r\nHTTP/1.1 {status} 204 ");
            assert_eq!(read(&[&line]).may_be_followed(), followed, "{status}");
            let pieces: Vec<_> = (0..line.len()).map(|at| &line[at..=at]).collect();
            assert_eq!(read(&pieces).may_be_followed(), followed, "{status}");
        }
        assert!(!read(&["HTTP/1.1 20"]).may_be_followed());
    }
}
