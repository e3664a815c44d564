//! Messages that are put aside for people to look at, with the reason.

use std::collections::BTreeMap;

use broker::{Names, Outgoing};

/// Why a message is put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// A word from a closed set.
    pub(crate) word: &'static str,
    /// More of it, for a person.
    pub(crate) detail: String,
}

impl Reason {
    /// The message for the queue of dead jobs.
    pub(crate) fn message(&self, body: Vec<u8>, names: &Names) -> Outgoing {
        let headers = BTreeMap::from([
            ("x-dead-reason".to_owned(), self.word.to_owned()),
            ("x-dead-detail".to_owned(), self.detail.clone()),
        ]);
        Outgoing { queue: names.dead(), body, headers, expires_in: None }
    }
}
