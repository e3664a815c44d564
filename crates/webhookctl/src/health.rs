//! `webhookctl health`: a container's health check, where there is neither a shell nor curl.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use egress::{EgressError, Internal, InternalConfig};
use hyper::{HeaderMap, Method};

use crate::{PROCESS, output};

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Asks a process whether it is well: the exit code is 0 if it answers 2xx in time, and 1 otherwise. For the health checks
/// of containers, whose image has no other program. Needs no settings.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to ask, such as http://127.0.0.1:9081/readyz.
    url: String,
    /// How long the whole answer may take.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Prints status and body of the answer. Returns whether it is a good one.
pub(crate) async fn run(Arguments { url, timeout }: Arguments) -> anyhow::Result<bool> {
    let config = InternalConfig {
        url: url.clone(),
        timeout,
        extra_ca_pem: None,
        user_agent: PROCESS.to_owned(),
        answer_limit: LONGEST_ANSWER,
    };
    let process = Internal::new(config).map_err(|error| match error {
        EgressError::Url => anyhow!("{url}: not an absolute URL of http or https"),
        error => error.into(),
    })?;
    let answer = process.send(Method::GET, HeaderMap::new(), Bytes::new()).await.with_context(|| url.clone())?;
    output::line(format_args!("{} {}", answer.status, String::from_utf8_lossy(&answer.body).trim_end()))?;
    Ok((200..300).contains(&answer.status))
}
