//! Turns the merged tree into typed values. Every error says where it is.
//!
//! The config crate's own deserializer reads `yes` as the number 1, rounds fractions, and reports an unknown key as
//! text. Here every value is text until the type of its setting says otherwise.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use config::{Value, ValueKind};
use serde::Deserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};

use super::error::{Key, SettingsError};

/// What is wrong, and where. The path is collected from the inside outwards.
#[derive(Debug)]
pub(super) struct Fault {
    path: Vec<String>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unknown(&'static [&'static str]),
    Missing,
    Invalid(String),
}

impl Fault {
    fn inside(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }
}

impl From<Fault> for SettingsError {
    fn from(Fault { mut path, kind }: Fault) -> Self {
        path.reverse();
        let key = Key::new(path.join("."));
        match kind {
            Kind::Unknown(known) => Self::Unknown { key, known },
            Kind::Missing => Self::Missing { keys: vec![key] },
            Kind::Invalid(reason) => Self::Invalid { key, reason },
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.kind, self.path)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self { path: Vec::new(), kind: Kind::Invalid(message.to_string()) }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self { path: vec![field.to_owned()], kind: Kind::Unknown(expected) }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: vec![field.to_owned()], kind: Kind::Missing }
    }
}

/// A section or a value.
pub(super) struct Node(pub(super) Value);

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
    value: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.value = self.rest.next();
        let Some((key, _)) = &self.value else { return Ok(None) };
        let key: de::value::StrDeserializer<'_, Fault> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let (key, value) = self.value.take().ok_or_else(|| <Fault as de::Error>::custom("a value without a key"))?;
        seed.deserialize(Node(value)).map_err(|fault| fault.inside(&key))
    }
}
