//! The version of a broker. It is in the first frame that it sends, which lapin reads and does not hand on.

use lapin::{
    protocol::{AMQPClass, connection::AMQPMethod, parse_class},
    types::AMQPValue,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::net::TcpStream;

/// What a client sends first: it speaks AMQP 0-9-1.
const PROTOCOL: &[u8] = b"AMQP\x00\x00\x09\x01";
/// A frame begins with its type, channel and length.
const FRAME_HEAD: usize = 7;
/// Far more than any greeting.
const MOST: usize = 64 * 1024;

/// Asks the broker on a connection of its own, which it leaves before it logs in. `None` over TLS, and when no greeting
/// comes. Wrap it in a timeout.
pub(crate) async fn version(uri: &AMQPUri) -> Option<String> {
    if uri.scheme == AMQPScheme::AMQPS {
        return None;
    }
    let stream = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await.ok()?;
    stream.writable().await.ok()?;
    // The buffer of a new connection takes eight bytes as a whole.
    (stream.try_write(PROTOCOL).ok()? == PROTOCOL.len()).then_some(())?;
    let (mut received, mut chunk) = (Vec::new(), [0; 1024]);
    while received.len() < MOST {
        stream.readable().await.ok()?;
        match stream.try_read(&mut chunk) {
            Ok(0) => return None,
            Ok(bytes) => received.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        if let Some(version) = version_in(&received) {
            return Some(version);
        }
    }
    None
}

/// The version in a greeting, once enough of it is there.
fn version_in(received: &[u8]) -> Option<String> {
    let length = u32::from_be_bytes(received.get(3..FRAME_HEAD)?.try_into().ok()?);
    let payload = received.get(FRAME_HEAD..)?.get(..usize::try_from(length).ok()?)?;
    let (_, class) = parse_class(payload).ok()?;
    let AMQPClass::Connection(AMQPMethod::Start(start)) = class else { return None };
    match start.server_properties.inner().get("version")? {
        AMQPValue::LongString(version) => Some(version.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greeting of a broker that says only its version.
    fn greeting() -> Vec<u8> {
        let mut properties = vec![7];
        properties.extend(b"versionS\x00\x00\x00\x063.10.8");
        let mut payload = vec![0, 10, 0, 10, 0, 9];
        payload.extend(u32::try_from(properties.len()).unwrap().to_be_bytes());
        payload.extend(properties);
        payload.extend(b"\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US");
        let mut frame = vec![1, 0, 0];
        frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend(payload);
        frame.push(0xce);
        frame
    }

    #[test]
    fn the_greeting_holds_the_version_once_it_is_there_as_a_whole() {
        let greeting = greeting();
        assert_eq!(version_in(&greeting).as_deref(), Some("3.10.8"));
        for end in 0..greeting.len() - 1 {
            assert_eq!(version_in(&greeting[..end]), None, "{end} bytes");
        }
        assert_eq!(version_in(b"HTTP/1.1 400 Bad Request\r\n\r\n"), None);
    }
}
