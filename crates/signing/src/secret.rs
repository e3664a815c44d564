//! The secret that signs a webhook's deliveries.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

const SECRET_PREFIX: &str = "whsec_";
const RANDOM_BYTES: usize = 32;

/// A webhook's `signing_secret`. Its whole text is the HMAC key. It is wiped from memory when dropped, and its `Debug`
/// output does not show it.
#[derive(Clone)]
pub struct SigningSecret(Zeroizing<String>);

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the operating system gave no random bytes")]
pub struct NoRandomness;

impl SigningSecret {
    /// A new secret: `whsec_` and the 64 lowercase hexadecimal digits of 32 random bytes.
    ///
    /// # Errors
    /// [`NoRandomness`] when the operating system's generator fails.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; RANDOM_BYTES]);
        SystemRandom::new().fill(bytes.as_mut_slice()).map_err(|_| NoRandomness)?;
        let digits = Zeroizing::new(hex::encode(bytes.as_slice()));
        // Reserved at once, as a string that grows leaves copies of the secret behind.
        let mut text = String::with_capacity(SECRET_PREFIX.len() + digits.len());
        text.push_str(SECRET_PREFIX);
        text.push_str(&digits);
        Ok(Self::from(text))
    }

    /// The secret itself, for signing, sealing and the one answer that shows it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SigningSecret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_secret_is_whsec_and_64_lowercase_hexadecimal_digits() {
        let secret = SigningSecret::generate().unwrap();
        let digits = secret.expose().strip_prefix("whsec_").unwrap();
        assert_eq!(digits.len(), 64);
        assert!(digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{digits}");
    }

    #[test]
    fn no_two_secrets_are_the_same() {
        assert_ne!(SigningSecret::generate().unwrap().expose(), SigningSecret::generate().unwrap().expose());
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let secret = SigningSecret::from("whsec_0123".to_owned());
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
        assert_eq!(format!("{:#?}", Some(secret)).matches("0123").count(), 0);
    }
}
