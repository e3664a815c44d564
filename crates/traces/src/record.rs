//! What is said of one piece of work, as it is exported.

use std::{
    borrow::Cow,
    num::{NonZeroU64, NonZeroU128},
};

use time::OffsetDateTime;

/// Which side of a conversation a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answers a request.
    Server,
    /// It sends a request.
    Client,
    /// It works on a message.
    Consumer,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// What is exported.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) trace: NonZeroU128,
    pub(crate) id: NonZeroU64,
    /// The parent's id. Every parent is in another process.
    pub(crate) parent: Option<u64>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) started_at: OffsetDateTime,
    pub(crate) ended_at: OffsetDateTime,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) is_failed: bool,
}
