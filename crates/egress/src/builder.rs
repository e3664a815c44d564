//! The settings by which clients read answers: leniently, within limits.

use hyper_util::{
    client::legacy::{Builder, Client},
    rt::{TokioExecutor, TokioTimer},
};

/// The maximum size of an answer's header, in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The limit of an answer's header in lines: more than fit into [`MAX_HEADER_BYTES`] at 33 bytes a line. hyper fills room
/// for that many at each answer, whatever it has: 4 µs for 2,000 lines, up to 113 µs for 4,096, and more than 1 ms for
/// all that could fit.
const MAX_LINE_BYTES: usize = 2000;

/// The beginning of each client.
pub(crate) fn builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .http1_max_buf_size(MAX_HEADER_BYTES)
        .http1_max_headers(MAX_LINE_BYTES)
        .http1_ignore_invalid_headers_in_responses(true);
    builder
}
