//! Failure messages for the webhook's administrator.
//!
//! They say what the administrator can act on. They say nothing of what was sent, nor where in a private network a name
//! led. Text that a peer can influence is `limited` where it is written.

use std::{error::Error, io::ErrorKind, time::Duration};

use hyper::StatusCode;
use tls::Failure;

use crate::{
    causes::io_kind,
    connect_error::ConnectError,
    limited::{limited, quoted},
    resolver::LookupError,
    retry_after::RetryAfter,
    tls_messages,
};

/// Says as well what the receiver asks for, as far as a status or a header is meant for that, and that it is in vain.
pub(crate) fn status(status: StatusCode, retry_after: Option<RetryAfter>) -> String {
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let gone = if status == StatusCode::GONE { ", which says that this address is gone for good" } else { "" };
    let comma = if gone.is_empty() { "" } else { "," };
    let pause = retry_after.map(|asked| format!("{comma} and asked for {asked}")).unwrap_or_default();
    let all_the_same = if gone.is_empty() && pause.is_empty() { "" } else { "; the schedule of attempts is fixed" };
    format!("the receiver answered {}{reason}{gone}{pause}{all_the_same}", status.as_u16())
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
            match (Failure::find(error), io_kind(error)) {
                (Some(failure), _) => tls_messages::failed(&failure),
                (None, Some(kind)) if is_broken(kind) => tls_messages::closed(),
                _ => tls_messages::failed(&Failure::Other(&"unknown cause")),
            }
        }
    }
}

fn unresolved(host: &str, error: LookupError) -> String {
    match error {
        LookupError::NotAName => format!("{host} is not a valid host name"),
        LookupError::NoAddress => format!("the host name {host} does not resolve to a public address"),
        LookupError::Failed => format!("the host name {host} does not resolve: its name servers fail"),
        LookupError::Silent => format!("the host name {host} does not resolve: no name server answered in time"),
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
        Some(error) => limited(format_args!("the receiver did not answer: {error}")),
        None => "the receiver did not answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_receiver_asks_for_is_said_and_that_the_schedule_is_fixed() {
        let minutes = Some(RetryAfter::Seconds(120));
        for (code, retry_after, message) in [
            (503, None, "the receiver answered 503 Service Unavailable"),
            (
                410,
                None,
                "the receiver answered 410 Gone, which says that this address is gone for good; \
                 the schedule of attempts is fixed",
            ),
            (
                429,
                minutes,
                "the receiver answered 429 Too Many Requests and asked for a pause of 2 min; \
                 the schedule of attempts is fixed",
            ),
            (
                410,
                minutes,
                "the receiver answered 410 Gone, which says that this address is gone for good, and asked for a pause \
                 of 2 min; the schedule of attempts is fixed",
            ),
        ] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), retry_after), message);
        }
    }
}
