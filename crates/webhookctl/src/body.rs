//! A message's body in a line of JSON.

/// The member's name and its value: text where the body is UTF-8, and hexadecimal digits where it is not.
pub(crate) fn shown(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_hex", hex::encode(body)),
    }
}
