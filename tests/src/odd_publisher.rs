//! A publisher that writes frames by itself: no client library sends properties that are not UTF-8.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::proxy::target;

/// The maximum time for an answer of the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const FRAME_END: u8 = 0xce;

/// A connection with a channel whose messages are confirmed. Its calls block.
pub struct OddPublisher {
    stream: TcpStream,
}

/// Properties of a message, as the broker's protocol has them: flags, and what they stand for.
#[derive(Clone, Debug, Default)]
pub struct OddProperties {
    flags: u16,
    bytes: Vec<u8>,
}

/// The properties that are short strings, and the bit of each. Without the user's id, which the broker checks, and the
/// expiration, which is a number.
pub const TEXT_PROPERTIES: [(&str, u16); 8] = [
    ("content type", 15),
    ("content encoding", 14),
    ("correlation id", 10),
    ("reply to", 9),
    ("message id", 7),
    ("type", 5),
    ("app id", 3),
    ("cluster id", 2),
];

impl OddProperties {
    /// One property that is a short string.
    #[must_use]
    pub fn text(bit: u16, text: &[u8]) -> Self {
        Self { flags: 1 << bit, bytes: short(text) }
    }

    /// A table of headers, as bytes.
    #[must_use]
    pub fn headers(table: &[u8]) -> Self {
        Self { flags: 1 << 13, bytes: long(table) }
    }
}

/// A short string: its length in one byte.
///
/// # Panics
/// When it is longer than 255 bytes.
#[must_use]
pub fn short(text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short string has at most 255 bytes");
    [&[length], text].concat()
}

/// A long string, or a table: its length in four bytes.
///
/// # Panics
/// When it is longer than 4 GiB.
#[must_use]
pub fn long(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a frame is not as long");
    [&length.to_be_bytes(), bytes].concat()
}

impl OddPublisher {
    /// Connects with the frame size that the broker proposes.
    ///
    /// # Panics
    /// When the broker cannot be reached.
    #[must_use]
    pub fn connect(url: &str) -> Self {
        let first = url.split(',').next().unwrap_or_default();
        let uri: lapin::uri::AMQPUri = first.parse().expect("an address of a broker");
        let stream = TcpStream::connect(target(first)).expect("the broker listens");
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a timeout can be set");
        let mut publisher = Self { stream };
        publisher.stream.write_all(b"AMQP\0\0\x09\x01").expect("the broker reads");
        publisher.await_method(10, 10);
        let login = format!("\0{}\0{}", uri.authority.userinfo.username, uri.authority.userinfo.password);
        let start = [long(&[]), short(b"PLAIN"), long(login.as_bytes()), short(b"en_US")].concat();
        publisher.method(0, [10, 11], &start);
        let tune = publisher.await_method(10, 30);
        publisher.method(0, [10, 31], &[&tune[..6], &[0, 0]].concat());
        publisher.method(0, [10, 40], &[short(uri.vhost.as_bytes()), vec![0, 0]].concat());
        publisher.await_method(10, 41);
        publisher.method(1, [20, 10], &short(&[]));
        publisher.await_method(20, 11);
        publisher.method(1, [85, 10], &[0]);
        publisher.await_method(85, 11);
        publisher
    }

    /// Publishes a message whose body fits into one frame, and waits for its confirm.
    ///
    /// # Panics
    /// When the broker does not confirm it.
    pub fn publish(&mut self, exchange: &str, key: &[u8], properties: &OddProperties, body: &[u8]) {
        self.method(1, [60, 40], &[&[0, 0], &short(exchange.as_bytes())[..], &short(key), &[0]].concat());
        let size = (body.len() as u64).to_be_bytes();
        let flags = properties.flags.to_be_bytes();
        self.frame(2, 1, &[&[0, 60, 0, 0], &size[..], &flags, &properties.bytes].concat());
        if !body.is_empty() {
            self.frame(3, 1, body);
        }
        self.await_method(60, 80);
    }

    fn method(&mut self, channel: u16, [class, method]: [u8; 2], arguments: &[u8]) {
        self.frame(1, channel, &[&[0, class, 0, method], arguments].concat());
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let frame = [&[kind], &channel.to_be_bytes()[..], &long(payload), &[FRAME_END]].concat();
        self.stream.write_all(&frame).expect("the broker reads");
    }

    /// Reads frames until this method comes. Returns its arguments.
    fn await_method(&mut self, class: u8, method: u8) -> Vec<u8> {
        loop {
            let mut head = [0; 7];
            self.stream.read_exact(&mut head).expect("the broker answers");
            let [kind, _, _, size @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes(size) as usize + 1];
            self.stream.read_exact(&mut payload).expect("the broker answers");
            match (kind, &payload[..]) {
                (1, [_, got_class, _, got_method, arguments @ .., FRAME_END]) => {
                    if (*got_class, *got_method) == (class, method) {
                        return arguments.to_vec();
                    }
                    let text = String::from_utf8_lossy(arguments);
                    panic!("{class}.{method} is expected, and {got_class}.{got_method} comes: {text}");
                }
                _ => assert_eq!(kind, 8, "a heartbeat"),
            }
        }
    }
}
