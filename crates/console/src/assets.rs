//! The style sheet, the script and the icon. Their addresses change with their content, so browsers may keep them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

/// The style sheet.
pub const STYLE: &str = include_str!("assets/console.css");
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
