//! Turns the merged tree into typed values.
//!
//! Every value is text until the type of its setting says otherwise: TOML's own deserializer would refuse the text of an
//! environment variable for a number. [`serde_path_to_error`] finds the setting of an error.

use std::fmt::Display;

use serde::Deserializer;
use serde::de::value::{MapDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde_path_to_error::{Path, Segment};
use toml::{Table, Value};

use super::error::{Key, SettingsError};

/// Reads a tree as typed values.
pub(super) fn read<T: DeserializeOwned>(tree: Table) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(Node(tree.into())).map_err(|error| {
        let path = error.path().clone();
        match error.into_inner() {
            Fault::Unknown(name, known) => SettingsError::Unknown { key: key_of(&path, Some(&name)), known },
            Fault::Missing(field) => SettingsError::Missing { keys: vec![key_of(&path, Some(field))] },
            Fault::Invalid(reason) => SettingsError::Invalid { key: key_of(&path, None), reason },
        }
    })
}

/// The section and the key of an error, or the section and the key that is missing or unknown there.
fn key_of(path: &Path, in_section: Option<&str>) -> Key {
    let names = path.iter().filter_map(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        _ => None,
    });
    Key::new(names.chain(in_section).collect::<Vec<_>>().join("."))
}

/// An error of a value, a section or a key.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// The key or the section is unknown; these are known.
    #[error("unknown")]
    Unknown(String, &'static [&'static str]),
    #[error("missing")]
    Missing(&'static str),
    #[error("{0}")]
    Invalid(String),
}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::Invalid(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// A section or a value.
struct Node(Value);

impl Node {
    /// The text of a value, of whatever type in the file. An error does not quote it: it may be sensitive.
    fn text(self) -> Result<String, Fault> {
        let found = match self.0 {
            Value::String(text) => return Ok(text),
            Value::Table(_) => "a section",
            Value::Array(_) => "a list; write it as text, comma separated",
            value => return Ok(value.to_string()),
        };
        Err(de::Error::custom(format_args!("expected a value, found {found}")))
    }
}

impl IntoDeserializer<'_, Fault> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.text()?)
    }

    /// An empty text counts as not set: compose files and charts write it so.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.0.as_str() == Some("") { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(StringDeserializer::new(self.text()?))
    }

    /// Reads all sections, or a section. An unknown name is mostly a spelling mistake, and is refused.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Value::Table(table) = self.0 else {
            return Err(de::Error::custom("is a section and has no value of its own"));
        };
        if let Some(name) = table.keys().find(|name| !fields.contains(&name.as_str())) {
            return Err(Fault::Unknown(name.clone(), fields));
        }
        visitor.visit_map(MapDeserializer::new(table.into_iter().map(|(name, value)| (name, Self(value)))))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}
