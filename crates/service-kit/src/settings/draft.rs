//! Settings, and all that is wrong with them.

use std::{collections::HashMap, path::Path};

use config::{Value, ValueKind};

use super::{Key, Settings, SettingsError, sources, tree};

/// What stands for a setting that is missing, so that the others can be read.
const PLACEHOLDER: &str = "-";

/// What can be read of the settings, for who has to say all that is wrong with them.
#[derive(Debug)]
pub struct Draft {
    /// The settings that every process needs and no source sets.
    pub missing: Vec<Key>,
    /// The settings, with a placeholder for each that is missing, or the first of the other faults.
    pub settings: Result<Settings, SettingsError>,
}

impl Draft {
    /// Reads the settings of this process as [`Settings::load`] does.
    pub fn load() -> Self {
        match sources::variables_of_process() {
            Ok(variables) => Self::from_sources(sources::file_of_process().as_deref(), variables),
            Err(fault) => Self { missing: Vec::new(), settings: Err(fault) },
        }
    }

    /// The same from sources that the caller supplies.
    pub(super) fn from_sources(file: Option<&Path>, env: HashMap<String, String>) -> Self {
        let mut missing = Vec::new();
        let settings = sources::merge(file, env).and_then(|mut merged| {
            loop {
                match tree::read::<Settings>(merged.clone()) {
                    Err(SettingsError::Missing { keys }) => {
                        keys.iter().for_each(|key| fill(&mut merged, key));
                        missing.extend(keys);
                    }
                    read => return read,
                }
            }
        });
        Self { missing, settings }
    }

    /// The settings, if nothing is wrong with them.
    pub(super) fn complete(self) -> Result<Settings, SettingsError> {
        let Self { missing: keys, settings } = self;
        if keys.is_empty() { settings } else { Err(SettingsError::Missing { keys }) }
    }
}

/// Puts the placeholder where a setting is missing.
fn fill(tree: &mut Value, key: &Key) {
    let mut place = tree;
    for segment in key.path().split('.') {
        let ValueKind::Table(table) = &mut place.kind else { return };
        place = table.entry(segment.to_owned()).or_insert_with(|| PLACEHOLDER.into());
    }
}
