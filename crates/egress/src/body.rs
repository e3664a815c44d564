//! Reads an answer's body, no further than is useful.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// The part of an answer's body that is kept, in bytes.
pub(crate) const MAX_KEPT_BYTES: usize = 1024;

/// The part of an answer's body that is read, in bytes. A connection whose answer ends within it can be reused.
const MAX_READ_BYTES: usize = 16 * 1024;

/// The time for the body of a successful answer: it changes nothing any more, and the attempt holds its slot.
pub(crate) const TIME_AFTER_SUCCESS: Duration = Duration::from_millis(250);

/// Reads until the end, the limit or the first error, and keeps the first bytes in `head`. Bounded in bytes, not in
/// time: the caller sets the deadline, and `head` outlives it.
pub(crate) async fn read(mut body: Incoming, head: &mut Vec<u8>) {
    let mut read = 0;
    while !body.is_end_stream() && read < MAX_READ_BYTES {
        let Some(Ok(frame)) = body.frame().await else { return };
        if let Some(data) = frame.data_ref() {
            read += data.len();
            head.extend_from_slice(&data[..data.len().min(MAX_KEPT_BYTES - head.len())]);
        }
    }
}
