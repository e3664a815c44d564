//! The style sheet, the script and the icon. Their addresses change with their content, so browsers may keep them if this
//! version of the console was asked for.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

/// The style sheet.
pub const STYLE: &str = include_str!("assets/console.css");
/// The style sheet of the API's documentation.
pub const DOCS_STYLE: &str = include_str!("assets/docs.css");
/// The script module. Every page works without it.
pub const SCRIPT: &str = include_str!("assets/console.js");
/// The icon, as SVG.
pub const ICON: &str = include_str!("assets/icon.svg");

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    (STYLE, SCRIPT, ICON).hash(&mut hasher);
    format!("{:x}", hasher.finish())
});

/// The address of an asset.
pub(crate) fn address(name: &str) -> String {
    format!("/console/assets/{name}?v={}", *VERSION)
}

/// Returns true if the query string of an asset's address is of this version. While an upgrade replaces processes, pages of one
/// version ask processes of the other for their assets.
pub fn is_of_this_version(query: &str) -> bool {
    query.strip_prefix("v=") == Some(&**VERSION)
}
