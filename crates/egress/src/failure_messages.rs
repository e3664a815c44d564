//! Failure messages for the webhook's administrator.
//!
//! They say what the administrator can act on. They say nothing of what was sent, nor where in a private network a name
//! led. Text that a peer can influence is `limited` where it is written.

use std::{
    error::Error,
    fmt::{self, Write},
    io::ErrorKind,
    time::Duration,
};

use domain::shortened;
use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
    http::response::Parts,
};
use tls::{Failure, Peer};

use crate::{
    causes::io_kind,
    connect_error::ConnectError,
    limited::{limited, quoted},
    resolver::LookupError,
};

/// The maximum of a header's value in a message, in characters.
const MAX_VALUE_CHARS: usize = 128;

/// A message about an answer. Says what the receiver asks for, as far as its status or a header is
/// meant for that, and that it is in vain.
pub(crate) fn status(answer: &Parts) -> String {
    let (status, headers) = (answer.status, &answer.headers);
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let gone = if status == StatusCode::GONE { ", which says that this address is gone for good" } else { "" };
    let asked = if status.is_redirection() {
        values(headers, &LOCATION).map(|place| format!(" and redirects to {place}"))
    } else if status == StatusCode::UNAUTHORIZED {
        values(headers, &WWW_AUTHENTICATE).map(|scheme| format!(" and asks for {scheme}"))
    } else {
        None
    };
    let comma = if gone.is_empty() && asked.is_none() { "" } else { "," };
    let pause = values(headers, &RETRY_AFTER).map(|pause| format!("{comma} with Retry-After: {pause}"));
    let pause = pause.unwrap_or_default();
    let in_vain = if !gone.is_empty() || !pause.is_empty() {
        "; the schedule of attempts is fixed"
    } else if status.is_redirection() && asked.is_some() {
        "; redirects are not followed"
    } else {
        ""
    };
    format!("the receiver answered {}{reason}{gone}{}{pause}{in_vain}", status.as_u16(), asked.unwrap_or_default())
}

/// The values of a header, escaped and cut.
fn values(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    (!values.is_empty()).then(|| shortened(Escaped(&values.join(", ")), MAX_VALUE_CHARS))
}

/// A text whose control characters and invisible ones are escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '"' | '\'' | '\\' => f.write_char(character),
            _ => write!(f, "{}", character.escape_debug()),
        })
    }
}

pub(crate) fn timeout(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => format!("no answer within {} s", limit.as_secs()),
        _ => format!("no answer within {} ms", limit.as_millis()),
    }
}

/// Whether the peer ended the connection.
pub(crate) const fn is_broken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

pub(crate) fn connect(error: &ConnectError, limit: Duration) -> String {
    match error {
        ConnectError::InvalidName { host } => format!("{} is not a valid host name", quoted(host)),
        ConnectError::Unresolved { host, source } => unresolved(&quoted(host), *source),
        ConnectError::RefusedHost(refused) => format!("{} ({})", refused.why(), quoted(&refused.host)),
        ConnectError::RefusedPort(refused) => format!("{} ({})", refused.why(), refused.port),
        ConnectError::RefusedLiteral(refused) => refused.to_string(),
        // The same as for a missing name: whoever may write a URL does not learn which internal names there are.
        ConnectError::RefusedName { host, .. } => unresolved(&quoted(host), LookupError::NoAddress),
        ConnectError::Tcp { address, others, source } => {
            let others = if *others == 0 { String::new() } else { format!(" (and {others} other addresses)") };
            match source.kind() {
                ErrorKind::TimedOut => timeout(limit),
                ErrorKind::ConnectionRefused => format!("connection refused by {address}{others}"),
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    format!("{address}{others} is unreachable")
                }
                _ => limited(format_args!("no connection to {address}{others}: {source}")),
            }
        }
        ConnectError::Slow => timeout(limit),
        ConnectError::Tls(error) => {
            let error = error.as_ref() as &(dyn Error + 'static);
            match (Failure::find(error, Peer::Receiver), io_kind(error)) {
                (Some(failure), _) => limited(failure),
                (None, Some(kind)) if is_broken(kind) => limited(Failure::closed(Peer::Receiver)),
                _ => "the TLS handshake failed; ask the receiver's operator what the receiver's log says".to_owned(),
            }
        }
    }
}

fn unresolved(host: &str, error: LookupError) -> String {
    match error {
        LookupError::NoAddress => format!("the host name {host} does not resolve to a public address"),
        LookupError::Failed => format!("the host name {host} does not resolve: its name servers fail"),
        LookupError::Silent | LookupError::NoDescriptor => {
            format!("the host name {host} does not resolve: no name server answered in time")
        }
    }
}

/// hyper's own error texts are fixed. They hold nothing that the receiver sent.
pub(crate) fn protocol(hyper: Option<&hyper::Error>, io: Option<ErrorKind>) -> String {
    match hyper {
        Some(error) if error.is_parse() => limited(format_args!("the answer is not HTTP/1.1: {error}")),
        Some(error) if error.is_incomplete_message() || io == Some(ErrorKind::UnexpectedEof) => {
            "the receiver closed the connection before it had answered".to_owned()
        }
        _ if io.is_some_and(is_broken) => "the receiver reset the connection before it had answered".to_owned(),
        _ if io == Some(ErrorKind::FileTooLarge) => "the answer is too long".to_owned(),
        Some(error) => limited(format_args!("the receiver did not answer: {error}")),
        None => "the receiver did not answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Response, header::HeaderValue};

    use super::*;

    fn said(code: u16, headers: &[(&'static str, &str)]) -> String {
        let mut answer = Response::builder().status(code);
        for (name, value) in headers {
            answer = answer.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        status(&answer.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn what_a_receiver_asks_for_is_said_and_that_it_is_in_vain() {
        let pause = ("retry-after", "120");
        for (code, headers, message) in [
            (503, &[][..], "the receiver answered 503 Service Unavailable"),
            (
                410,
                &[],
                "the receiver answered 410 Gone, which says that this address is gone for good; \
                 the schedule of attempts is fixed",
            ),
            (
                429,
                &[pause],
                "the receiver answered 429 Too Many Requests with Retry-After: 120; \
                 the schedule of attempts is fixed",
            ),
            (
                410,
                &[pause],
                "the receiver answered 410 Gone, which says that this address is gone for good, with Retry-After: 120; \
                 the schedule of attempts is fixed",
            ),
            (
                308,
                &[("location", "https://example.com/new?a=\"b\"")],
                "the receiver answered 308 Permanent Redirect and redirects to https://example.com/new?a=\"b\"; \
                 redirects are not followed",
            ),
            (304, &[], "the receiver answered 304 Not Modified"),
            (
                302,
                &[("location", "/busy"), pause],
                "the receiver answered 302 Found and redirects to /busy, with Retry-After: 120; \
                 the schedule of attempts is fixed",
            ),
            (
                401,
                &[("www-authenticate", "Bearer realm=\"api\""), ("www-authenticate", "Basic")],
                "the receiver answered 401 Unauthorized and asks for Bearer realm=\"api\", Basic",
            ),
            (401, &[("location", "/")], "the receiver answered 401 Unauthorized"),
            (503, &[("location", "/"), ("www-authenticate", "Basic")], "the receiver answered 503 Service Unavailable"),
        ] {
            assert_eq!(said(code, headers), message);
        }
    }

    #[test]
    fn what_a_header_says_is_escaped_and_short() {
        let odd = said(301, &[("location", "/\t\u{202e}<b>\u{200b}\u{fc}")]);
        assert!(odd.contains(" to /\\t\\u{202e}<b>\\u{200b}\u{fc}; "), "{odd}");
        for long in ["x", "\u{202e}"] {
            let message = said(401, &[("www-authenticate", long.repeat(10_000).as_str())]);
            let value = message.split_once(" asks for ").unwrap().1;
            assert_eq!((value.chars().count(), value.ends_with('…')), (MAX_VALUE_CHARS, true));
        }
    }
}
