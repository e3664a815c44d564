//! The sources of settings, merged into one tree in the order of precedence.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::SettingsError;

const DEFAULTS: &str = include_str!("defaults.toml");
const FILE_VARIABLE: &str = "WEBHOOKS_CONFIG";
const PREFIX: &str = "WEBHOOKS__";
const SEPARATOR: &str = "__";

pub(super) fn file_of_process() -> Option<PathBuf> {
    env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The environment variables of this process that are settings.
pub(super) fn variables_of_process() -> Result<HashMap<String, String>, SettingsError> {
    let ours = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(PREFIX))?;
        Some(match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(SettingsError::Variable { name, reason: "is not Unicode text" }),
        })
    });
    ours.collect()
}

/// Merges the defaults, the file and the environment. The later one wins.
pub(super) fn merge(file: Option<&Path>, env: HashMap<String, String>) -> Result<Table, SettingsError> {
    let mut merged = parse(Path::new("defaults.toml"), DEFAULTS)?;
    if let Some(path) = file {
        let text = fs::read_to_string(path).map_err(|source| SettingsError::FileRead { path: path.into(), source })?;
        for (name, value) in parse(path, &text)? {
            match (merged.get_mut(&name), value) {
                (Some(Value::Table(section)), Value::Table(settings)) => section.extend(settings),
                (_, value) => drop(merged.insert(name, value)),
            }
        }
    }
    let variables: BTreeMap<_, _> = env.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    for (name, text) in variables {
        let Some((section, key)) = section_and_key(&name) else {
            let reason = "a setting is written WEBHOOKS__SECTION__KEY, in upper case";
            return Err(SettingsError::Variable { name, reason });
        };
        set(&mut merged, &section, &key, &text);
    }
    Ok(merged)
}

/// Sets a key of a section to a text.
pub(super) fn set(tree: &mut Table, section: &str, key: &str, text: &str) {
    let section = tree.entry(section).or_insert_with(|| Table::new().into());
    if let Value::Table(section) = section {
        section.insert(key.to_owned(), text.into());
    }
}

/// The section and the key that a variable names. Refuses lower case instead of ignoring it: it looks set.
fn section_and_key(name: &str) -> Option<(String, String)> {
    let (section, key) = name.strip_prefix(PREFIX)?.split_once(SEPARATOR)?;
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let fits = is_word(section) && is_word(key) && !key.contains(SEPARATOR);
    fits.then(|| (section.to_lowercase(), key.to_lowercase()))
}

/// Reads TOML. An error has the parser's message and line number. Its `Display` shows the line's text too, which may be a
/// credential.
fn parse(path: &Path, text: &str) -> Result<Table, SettingsError> {
    text.parse().map_err(|fault: toml::de::Error| {
        let before = fault.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let reason = format!("is not valid TOML: line {line}: {}", fault.message());
        SettingsError::FileSyntax { path: path.into(), reason }
    })
}
