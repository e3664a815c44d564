//! Where a message goes that is no job.

use std::collections::BTreeMap;

use broker::{Names, Outgoing};
use domain::JobError;

/// The message that keeps what is no job for people to look at.
pub(crate) fn dead(body: Vec<u8>, error: &JobError, names: &Names) -> Outgoing {
    let headers = BTreeMap::from([
        ("x-dead-reason".to_owned(), error.reason().to_owned()),
        ("x-dead-detail".to_owned(), error.to_string()),
    ]);
    Outgoing { queue: names.dead(), body, headers, expires_in: None }
}
