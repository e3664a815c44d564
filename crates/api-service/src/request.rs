//! What a request says, checked: the ids of its path, the page of a list, the members of its body.

mod fields;
mod json;
mod page;
mod path;

pub(crate) use self::{
    fields::{Checked, Fields, boolean, distinct, event_type, string, timestamp, violation},
    json::{Members, Need, PATIENCE, members},
    page::{DEFAULT_LIMIT, Filter, LONGEST_QUERY, List, MAX_LIMIT, Parameters, Query, cursor_after, cut, moment},
    path::Id,
};
