//! What was written, without its syntax: one tree for TOML with byte ranges and for JSON without.
//!
//! Every reader of conf and policy works on this tree, so files and the management API cannot come to differ.

use std::ops::Range;

use serde_json::Value as Json;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A value and where it stands; the range is empty at 0 for JSON.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) node: Node,
    pub(super) span: Range<usize>,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// JSON `null`: as good as not written.
    Null,
    /// What a fault was already reported for: written, but not to be read.
    Faulty,
    Text(String),
    Integer(i64),
    /// A number that is no 64-bit integer.
    Number,
    Bool(bool),
    /// A TOML date, time or date-time, as RFC 3339 as far as it goes.
    Time(String),
    List(Vec<Value>),
    Table(Table),
}

/// Members in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) Vec<Entry>);

/// A member: its name, where the name stands, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) at: Range<usize>,
    pub(super) value: Value,
}

impl Value {
    pub(super) fn from_toml(value: &Spanned<DeValue<'_>>) -> Self {
        let node = match value.get_ref() {
            DeValue::String(text) => Node::Text(text.to_string()),
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).map_or(Node::Number, Node::Integer),
            DeValue::Float(_) => Node::Number,
            DeValue::Boolean(b) => Node::Bool(*b),
            DeValue::Datetime(time) => Node::Time(time.to_string()),
            DeValue::Array(list) => Node::List(list.iter().map(Self::from_toml).collect()),
            DeValue::Table(table) => Node::Table(Table::from_toml(table)),
        };
        Self { node, span: value.span() }
    }

    pub(super) fn from_json(value: &Json) -> Self {
        let node = match value {
            Json::Null => Node::Null,
            Json::Bool(b) => Node::Bool(*b),
            Json::Number(n) => n.as_i64().map_or(Node::Number, Node::Integer),
            Json::String(text) => Node::Text(text.clone()),
            Json::Array(list) => Node::List(list.iter().map(Self::from_json).collect()),
            Json::Object(members) => {
                let entry = |(name, value): (&String, &Json)| Entry {
                    name: name.clone(),
                    at: 0..0,
                    value: Self::from_json(value),
                };
                Node::Table(Table(members.iter().map(entry).collect()))
            }
        };
        Self { node, span: 0..0 }
    }

    /// What the value is, for "must be …, not …".
    pub(super) fn kind(&self) -> &'static str {
        match self.node {
            Node::Null => "null",
            Node::Faulty => "what it is",
            Node::Text(_) => "a string",
            Node::Integer(_) => "an integer",
            Node::Number => "a number",
            Node::Bool(_) => "a boolean",
            Node::Time(_) => "a date-time",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
        }
    }
}

impl Table {
    pub(super) fn from_toml(table: &DeTable<'_>) -> Self {
        let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| Entry {
            name: AsRef::<str>::as_ref(name.get_ref()).to_owned(),
            at: name.span(),
            value: Value::from_toml(value),
        };
        let mut entries: Vec<Entry> = table.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.at.start);
        Self(entries)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }
}
