//! Arguments that cannot be used. clap finds most of them, and ends with the exit code 2.

use std::io;

use anyhow::Context;
use hyper::Uri;
use time::OffsetDateTime;

/// An argument that clap takes and that cannot be used all the same. The exit code is clap's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

/// The text of standard input, for an argument that is `-`.
pub(crate) fn stdin() -> anyhow::Result<String> {
    io::read_to_string(io::stdin()).context("standard input cannot be read")
}

/// An absolute URL of http or https, as `egress::Internal` takes it.
pub(crate) fn url(text: &str) -> Result<String, &'static str> {
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    match uri.as_ref().and_then(Uri::scheme_str) {
        Some("http" | "https") => Ok(text.to_owned()),
        _ => Err("not an absolute URL of http or https"),
    }
}

/// The end of a session or a key that lasts so long and begins now.
pub(crate) fn expiry(text: &str) -> Result<OffsetDateTime, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if ttl.is_zero() {
        return Err("it must last longer than zero".to_owned());
    }
    let ttl = time::Duration::try_from(ttl).ok();
    ttl.and_then(|ttl| OffsetDateTime::now_utc().checked_add(ttl)).ok_or_else(|| "too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_urls_of_http_and_https_are_taken() {
        for good in ["http://127.0.0.1:9081/readyz", "https://app.example.com", "http://[::1]:8080/"] {
            assert_eq!(url(good).as_deref(), Ok(good));
        }
        for bad in ["nonsense", "/readyz", "127.0.0.1:9081/readyz", "ftp://app/", "http:///readyz", ""] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_session_or_a_key_lasts_longer_than_zero_and_ends() {
        let left = expiry("12h").unwrap() - OffsetDateTime::now_utc();
        assert!((43_100..=43_200).contains(&left.whole_seconds()), "{left}");
        for (bad, why) in [("soon", "expected number"), ("0s", "longer than zero"), ("9000y", "too long")] {
            assert!(expiry(bad).is_err_and(|said| said.contains(why)), "{bad}");
        }
    }
}
