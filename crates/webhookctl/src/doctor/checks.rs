//! The judgement: from what was seen to findings, without IO.

mod attempts;
mod backlog;
mod broker;
mod cluster;
mod database;
mod ledger;
mod queues;
mod services;
mod settings;

use super::{
    finding::Finding,
    observed::{DatabaseSeen, Looked, Observed},
};

/// All findings, area by area.
pub(super) fn all(observed: &Observed) -> Vec<Finding> {
    [
        settings::check(&observed.settings),
        database::check(observed),
        ledger::check(observed),
        broker::check(observed),
        queues::check(observed),
        cluster::check(observed),
        services::check(observed),
        backlog::check(observed),
        attempts::check(observed),
    ]
    .concat()
}

/// The findings of a look at the database. An old schema may lack the table: then there is no finding if the look showed
/// nothing.
fn judged<T>(
    id: &'static str,
    (looked, seen): (&Looked<T>, &DatabaseSeen),
    judge: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    match looked {
        Ok(shown) => judge(shown),
        Err(_) if ledger::is_old(seen) => Vec::new(),
        Err(why) => vec![unseen(id, why)],
    }
}

/// The finding of a look that showed nothing.
fn unseen(id: &'static str, why: &str) -> Finding {
    Finding::warning(id, format!("not seen: {why}"), "fix what the message names; the other lines do not depend on it")
}

#[cfg(test)]
mod tests;
