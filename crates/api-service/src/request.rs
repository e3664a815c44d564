//! What a request says, checked: the ids of its path, the page of a list, the members of its body.

pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod path;
