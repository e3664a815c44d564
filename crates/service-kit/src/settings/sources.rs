//! The sources of settings, merged into one tree in the order of precedence.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use config::{Config, ConfigError, Environment, File, FileFormat, Value};

use super::SettingsError;

const DEFAULTS: &str = include_str!("defaults.toml");
const FILE_VARIABLE: &str = "WEBHOOKS_CONFIG";
const PREFIX: &str = "WEBHOOKS";
const SEPARATOR: &str = "__";

pub(super) fn file_of_process() -> Option<PathBuf> {
    env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The environment variables of this process that are settings.
pub(super) fn variables_of_process() -> Result<HashMap<String, String>, SettingsError> {
    let ours = env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| is_ours(name))?;
        Some(match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(SettingsError::Variable { name, reason: "is not Unicode text" }),
        })
    });
    ours.collect()
}

/// Merges the defaults, the file and the environment. The later one wins.
pub(super) fn merge(file: Option<&Path>, env: HashMap<String, String>) -> Result<Value, SettingsError> {
    let variables: HashMap<_, _> = env.into_iter().filter(|(name, _)| is_ours(name)).collect();
    if let Some(name) = variables.keys().filter(|name| !is_well_formed(name)).min() {
        let reason = "a setting is written WEBHOOKS__SECTION__KEY, in upper case";
        return Err(SettingsError::Variable { name: name.clone(), reason });
    }
    let variables =
        Environment::with_prefix(PREFIX).prefix_separator(SEPARATOR).separator(SEPARATOR).source(Some(variables));
    let file = file.map(|path| read(path).map(|text| (path, text))).transpose()?;
    let text = file.as_ref().map_or("", |(_, text)| text);
    let merged = Config::builder()
        .add_source(File::from_str(DEFAULTS, FileFormat::Toml))
        .add_source(File::from_str(text, FileFormat::Toml))
        .add_source(variables)
        .build();
    merged.map(|config| config.cache).map_err(|error| SettingsError::FileSyntax {
        path: file.as_ref().map(|(path, _)| path.to_path_buf()).unwrap_or_default(),
        reason: syntax_fault(text, &error),
    })
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

/// Whether the name is the prefix, a section and a key. Refuses lower case instead of ignoring it: it looks set.
fn is_well_formed(name: &str) -> bool {
    let segments: Vec<_> = name.split(SEPARATOR).collect();
    let word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    segments.len() == 3 && segments.into_iter().all(word)
}

fn read(path: &Path) -> Result<String, SettingsError> {
    fs::read_to_string(path).map_err(|source| SettingsError::FileRead { path: path.into(), source })
}

/// The parser's message and line number. The error's `Display` shows the line's text too, which may be a credential.
fn syntax_fault(text: &str, error: &ConfigError) -> String {
    let fault = match error {
        ConfigError::FileParse { cause, .. } => cause.downcast_ref::<toml::de::Error>(),
        _ => None,
    };
    let Some(fault) = fault else { return "is not valid TOML".to_owned() };
    let before = fault.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("is not valid TOML: line {line}: {}", fault.message())
}
