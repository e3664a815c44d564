//! `webhookctl health`: a container's health check, where there is neither a shell nor curl.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use hyper::{HeaderMap, Method};

use crate::{arguments, connect, output};

/// Asks a process whether it is well. For the health checks of containers, whose image has no other program. Needs no
/// settings.
///
/// Exit codes: 0 it answers 2xx in time, 1 it does not, 2 arguments that cannot be used.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to ask, such as http://127.0.0.1:9081/readyz.
    #[arg(value_parser = arguments::url)]
    url: String,
    /// How long the whole answer may take.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Prints status and body of the answer. Returns whether it is a good one.
pub(crate) async fn run(Arguments { url, timeout }: Arguments) -> anyhow::Result<bool> {
    let client = connect::client(&url, timeout, None)?;
    let answer = client.send(Method::GET, HeaderMap::new(), Bytes::new()).await.with_context(|| url.clone())?;
    output::line(format_args!("{} {}", answer.status, String::from_utf8_lossy(&answer.body).trim_end()))?;
    Ok((200..300).contains(&answer.status))
}
