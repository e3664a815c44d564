//! What a request says, checked: the ids of its path, the page of a list, the members of its body.

mod cursor;
mod delivery_filter;
mod fields;
mod json;
mod page;
mod path;
mod recovery;
mod registration;
mod stats_query;

pub(crate) use self::{
    cursor::Cursors,
    fields::{Checked, Fields, event_type},
    json::{Members, Need, PATIENCE, members, read as read_body},
    page::{DEFAULT_LIMIT, LONGEST_QUERY, List, MAX_LIMIT, Parameters, Query, cut},
    path::Id,
    recovery::RecoveryRequest,
    registration::{Registration, change as read_change},
    stats_query::{Span, StatsQuery, length as step_length},
};
