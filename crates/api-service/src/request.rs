//! What a request says, checked: the ids of its path, the page of a list, the members of its body.

mod delivery_filter;
mod recovery;
mod settings;
mod stats_query;

pub(crate) use self::{
    recovery::{RecoveryRequest, recovery},
    settings::{Change, change, registration},
    stats_query::{Span, StatsQuery, length as step_length},
};
