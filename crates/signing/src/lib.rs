#![doc = include_str!("../README.md")]

mod secret;
mod sign;
mod standard;
mod verify;

pub use secret::{NoRandomness, SigningSecret};
pub use sign::{sign, sign_standard};
pub use standard::{
    STANDARD_ID_HEADER, STANDARD_SIGNATURE_HEADER, STANDARD_TIMESTAMP_HEADER, StandardHeaders, verify_standard,
};
pub use verify::{MAX_TOLERANCE_SECONDS, VerifyError, verify};

/// The name of the header that carries the signature (specification, section 4.4).
pub const SIGNATURE_HEADER: &str = "X-Service-Signature";
