//! What a request says, checked: the ids of its path, the page of a list, the members of its body.

mod cursor;
mod delivery_filter;
mod fields;
mod json;
mod page;
mod path;
mod recovery;
mod settings;
mod stats_query;

pub(crate) use self::{
    cursor::Cursors,
    fields::{Checked, Fields, FromBody, Given, Source, event_type, from_input},
    json::{Members, Need, members, read as read_body},
    page::{LONGEST_QUERY, List, Parameters, Query, cut},
    path::Id,
    recovery::{RecoveryRequest, recovery},
    settings::{Change, change, registration},
    stats_query::{Span, StatsQuery, length as step_length},
};
#[cfg(test)]
pub(crate) use self::{
    json::PATIENCE,
    page::{DEFAULT_LIMIT, MAX_LIMIT},
};
