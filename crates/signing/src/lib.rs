#![doc = include_str!("../README.md")]

mod digest;
mod secret;
mod verify;

pub use digest::sign;
pub use secret::{NoRandomness, SigningSecret};
pub use verify::{MAX_TOLERANCE_SECONDS, VerifyError, verify};

/// The name of the header that carries the signature (specification, section 4.4).
pub const SIGNATURE_HEADER: &str = "X-Service-Signature";
