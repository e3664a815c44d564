//! Parses the text of a setting. The messages quote the text, so none of this is for sensitive settings.

use std::{fmt::Display, net::SocketAddr, str::FromStr, time::Duration};

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error};
use url::Url;

const SHORTEST_RETENTION: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// So that no date before it is out of range.
const LONGEST_TIME: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

/// Reads text and parses it; `what` completes "invalid …".
fn parsed<'de, D, T, E>(deserializer: D, what: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: Display,
{
    let text = String::deserialize(deserializer)?;
    parse(text.trim()).map_err(|error| D::Error::custom(format_args!("invalid {what} {text:?}: {error}")))
}

fn at_least_one<T: FromStr + PartialEq + From<u8>>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number| *number != T::from(0))
}

/// A duration that may be zero.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parsed(deserializer, "duration", humantime::parse_duration)
}

/// A duration longer than zero.
pub(super) fn positive_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parsed(deserializer, "duration", |text| at_most(Duration::MAX, text))
}

/// A duration longer than zero and no longer than `longest`.
fn at_most(longest: Duration, text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".to_owned()),
        Ok(duration) if duration > longest => Err("must be at most 100years".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Comma separated entries; there may be none.
fn list<T, E>(text: &str, parse: impl FnMut(&str) -> Result<T, E>) -> Result<Vec<T>, E> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(parse).collect()
}

/// How long history is kept: not less than a late event, its retries and its log are of use.
pub(super) fn retention<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parsed(deserializer, "duration", |text| match at_most(LONGEST_TIME, text) {
        Ok(keep) if keep < SHORTEST_RETENTION => Err("must be at least 2days".to_owned()),
        other => other,
    })
}

/// The same for a setting without a default.
pub(super) fn optional_retention<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    retention(deserializer).map(Some)
}

/// A time to wait for: longer than zero, and not so long that no date is that far.
pub(super) fn threshold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parsed(deserializer, "duration", |text| at_most(LONGEST_TIME, text))
}

/// Several of them, comma separated; there may be none.
pub(super) fn thresholds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
    parsed(deserializer, "list of durations", |text| list(text, |entry| at_most(LONGEST_TIME, entry)))
}

/// A value whose type says by itself what is wrong with the text.
pub(super) fn value<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    parsed(deserializer, "value", T::from_str)
}

/// A whole number that may be zero.
pub(super) fn number<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    parsed(deserializer, "number", |text| text.parse().map_err(|_| "expected a whole number"))
}

/// A whole number of at least 1.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    parsed(deserializer, "number", |text| at_least_one(text).ok_or("expected a whole number of at least 1"))
}

/// A whole number from 1 to 65535: what AMQP can count in a prefetch.
pub(super) fn small_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    parsed(deserializer, "number", |text| at_least_one(text).ok_or("expected a whole number from 1 to 65535"))
}

/// A part of a whole: above 0 and at most 1.
pub(super) fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    parsed(deserializer, "fraction", |text| {
        let fits = |fraction: &f64| *fraction > 0.0 && *fraction <= 1.0;
        text.parse().ok().filter(fits).ok_or("expected a number above 0 and at most 1")
    })
}

/// A part of a whole, which may be none of it.
pub(super) fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    parsed(deserializer, "ratio", |text| {
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or("expected a number from 0 to 1")
    })
}

fn to_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port, as in 127.0.0.1:8080")
}

/// An IP address with its port.
pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parsed(deserializer, "address", to_address)
}

/// An IP address with its port, or `None` for the empty text.
pub(super) fn optional_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    parsed(deserializer, "address", |text| match text {
        "" => Ok(None),
        text => to_address(text).map(Some),
    })
}

/// Comma separated IP addresses with their ports; the empty text is none.
pub(super) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    parsed(deserializer, "addresses", |text| list(text, to_address))
}

/// An `http` or `https` URL without credentials, or `None` for the empty text. No error quotes it: it may hold some.
pub(super) fn optional_http_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut url = Url::parse(text.trim()).map_err(|error| D::Error::custom(format_args!("invalid URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(D::Error::custom("invalid URL: expected http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(D::Error::custom("invalid URL: it must not hold a user or a password"));
    }
    url.set_fragment(None);
    Ok(Some(url))
}

/// An `http` or `https` URL of a host alone, or `None` for the empty text.
pub(super) fn optional_origin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let url = optional_http_url(deserializer)?;
    if url.as_ref().is_some_and(|url| url.path() != "/" || url.query().is_some() || url.fragment().is_some()) {
        return Err(D::Error::custom(
            "invalid URL: expected only a scheme, a host and a port, as in https://hooks.example.com",
        ));
    }
    Ok(url)
}

/// Comma separated CIDRs; the empty text is no network.
pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    parsed(deserializer, "networks", |text| {
        list(text, |entry| entry.parse().map_err(|_| format!("{entry:?} is not a CIDR; expected one as in 10.0.0.0/8")))
    })
}

/// The prefix of queue names.
pub(super) fn queue_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    parsed(deserializer, "prefix", |text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(fits) {
            Ok(text.to_owned())
        } else {
            Err("expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
        }
    })
}

/// An exchange's name. AMQP allows 255 bytes. The empty name would be the broker's default exchange.
pub(super) fn exchange<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    parsed(deserializer, "exchange", |text| match text.len() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("expected 1 to 255 bytes"),
    })
}
