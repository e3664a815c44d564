//! Turns the merged tree into typed values.
//!
//! The config crate's own deserializer reads `yes` as the number 1, rounds fractions, and reports an unknown key as
//! text. Here every value is text until the type of its setting says otherwise. [`serde_path_to_error`] finds the
//! setting of an error.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use config::{Value, ValueKind};
use serde::Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde_path_to_error::{Path, Segment};

use super::error::{Key, SettingsError};

/// Reads a tree as typed values.
pub(super) fn read<T: DeserializeOwned>(tree: Value) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(Node(tree)).map_err(|error| {
        let path = error.path().clone();
        match error.into_inner() {
            Fault::Unknown(known) => SettingsError::Unknown { key: key_of(&path, None), known },
            Fault::Missing(field) => SettingsError::Missing { keys: vec![key_of(&path, Some(field))] },
            Fault::Invalid(reason) => SettingsError::Invalid { key: key_of(&path, None), reason },
        }
    })
}

/// The section and the key of an error, or the section and the key that it misses.
fn key_of(path: &Path, missing: Option<&str>) -> Key {
    let names = path.iter().filter_map(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        _ => None,
    });
    Key::new(names.chain(missing).collect::<Vec<_>>().join("."))
}

/// An error of a value, a section or a key.
#[derive(Debug)]
enum Fault {
    /// The key is unknown; these are known.
    Unknown(&'static [&'static str]),
    Missing(&'static str),
    Invalid(String),
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::Invalid(message.to_string())
    }

    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        Self::Unknown(expected)
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
        let found = match self.0.kind {
            ValueKind::Table(_) => "a section",
            ValueKind::Array(_) => "a list; write it as text, comma separated",
            ValueKind::Nil => "nothing",
            value => return Ok(value.to_string()),
        };
        Err(de::Error::custom(format_args!("expected a value, found {found}")))
    }

    fn is_empty(&self) -> bool {
        matches!(&self.0.kind, ValueKind::String(text) if text.is_empty())
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.text()?)
    }

    /// An empty text counts as not set: compose files and charts write it so.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let text: de::value::StringDeserializer<Fault> = self.text()?.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let ValueKind::Table(table) = self.0.kind else {
            return Err(de::Error::custom("is a section and has no value of its own"));
        };
        let rest: BTreeMap<_, _> = table.into_iter().collect();
        visitor.visit_map(Entries { rest: rest.into_iter(), value: None })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// A section's entries, sorted by name, so that the same one of several errors is always reported.
struct Entries {
    rest: std::collections::btree_map::IntoIter<String, Value>,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let key: de::value::StringDeserializer<Fault> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let value = self.value.take().ok_or_else(|| <Fault as de::Error>::custom("a value without a key"))?;
        seed.deserialize(Node(value))
    }
}
