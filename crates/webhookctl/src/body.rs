//! A message's body as a member of a JSON line.

/// The member's name and its value: the text if the body is UTF-8, else its hexadecimal digits.
pub(crate) fn shown(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_hex", hex::encode(body)),
    }
}
