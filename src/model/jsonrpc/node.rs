//! A value of a [`Document`](super::Document), read straight from the tape. Copied freely; allocates nothing.

use simd_json::{Node as Entry, StaticNode};

use super::document::entry_count;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value, with all that is below it.
#[derive(Clone, Copy, Debug)]
pub struct Node<'d> {
    /// The value's own entries: one, or a header and everything below it.
    entries: &'d [Entry<'d>],
}

impl<'d> Node<'d> {
    pub(super) fn new(entries: &'d [Entry<'d>]) -> Self {
        Self { entries }
    }

    pub(super) const fn entries(self) -> &'d [Entry<'d>] {
        self.entries
    }

    /// An address that no other value of any living document has.
    #[must_use]
    pub fn address(self) -> usize {
        self.entries.as_ptr().addr()
    }

    /// What the value is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.entries.first() {
            Some(Entry::String(_)) => Kind::String,
            Some(Entry::Object { .. }) => Kind::Object,
            Some(Entry::Array { .. }) => Kind::Array,
            Some(Entry::Static(StaticNode::Bool(_))) => Kind::Bool,
            Some(Entry::Static(StaticNode::Null)) | None => Kind::Null,
            Some(Entry::Static(_)) => Kind::Number,
        }
    }

    /// The unescaped text of a string.
    #[must_use]
    pub fn as_str(self) -> Option<&'d str> {
        match self.entries.first() {
            Some(Entry::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The value of `true` or `false`.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.entries.first() {
            Some(Entry::Static(StaticNode::Bool(value))) => Some(*value),
            _ => None,
        }
    }

    /// A number that is written as an integer and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self.entries.first() {
            Some(Entry::Static(StaticNode::I64(value))) => Some(*value),
            Some(Entry::Static(StaticNode::U64(value))) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A number that is written as an integer and fits.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        match self.entries.first() {
            Some(Entry::Static(StaticNode::I64(value))) => u64::try_from(*value).ok(),
            Some(Entry::Static(StaticNode::U64(value))) => Some(*value),
            _ => None,
        }
    }

    /// Any number, as the nearest double.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        match self.entries.first() {
            Some(Entry::Static(StaticNode::I64(value))) => Some(*value as f64),
            Some(Entry::Static(StaticNode::U64(value))) => Some(*value as f64),
            Some(Entry::Static(StaticNode::F64(value))) => Some(*value),
            _ => None,
        }
    }

    /// The number of members or items; 0 for a scalar.
    #[must_use]
    pub fn len(self) -> usize {
        match self.entries.first() {
            Some(Entry::Object { len, .. } | Entry::Array { len, .. }) => *len,
            _ => 0,
        }
    }

    /// The number of values and names at or below this value, itself counted.
    #[must_use]
    pub const fn size(self) -> usize {
        self.entries.len()
    }

    /// Whether there are no members or items.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The member of that exact name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Node<'d>> {
        self.members().find_map(|(other, value)| (other == name).then_some(value))
    }

    /// The members of an object in document order; nothing for anything else.
    #[must_use]
    pub fn members(self) -> Members<'d> {
        match self.entries.split_first() {
            Some((Entry::Object { .. }, rest)) => Members { rest },
            _ => Members { rest: &[] },
        }
    }

    /// The items of an array; nothing for anything else.
    #[must_use]
    pub fn items(self) -> Items<'d> {
        match self.entries.split_first() {
            Some((Entry::Array { .. }, rest)) => Items { rest },
            _ => Items { rest: &[] },
        }
    }

    /// Copies the value out. No deeper than [`DEPTH_MAX`](super::DEPTH_MAX), so recursion is bounded.
    #[must_use]
    pub fn to_value(self) -> serde_json::Value {
        use serde_json::Value;
        match self.kind() {
            Kind::Null => Value::Null,
            Kind::Bool => Value::Bool(self.as_bool().unwrap_or_default()),
            Kind::String => Value::String(self.as_str().unwrap_or_default().to_owned()),
            Kind::Array => Value::Array(self.items().map(Node::to_value).collect()),
            Kind::Object => {
                Value::Object(self.members().map(|(name, value)| (name.to_owned(), value.to_value())).collect())
            }
            Kind::Number => match (self.as_u64(), self.as_i64()) {
                (Some(value), _) => Value::from(value),
                (None, Some(value)) => Value::from(value),
                (None, None) => self.as_f64().map_or(Value::Null, Value::from),
            },
        }
    }
}

/// The members of an object; see [`Node::members`].
#[derive(Clone, Debug)]
pub struct Members<'d> {
    rest: &'d [Entry<'d>],
}

impl<'d> Iterator for Members<'d> {
    type Item = (&'d str, Node<'d>);

    fn next(&mut self) -> Option<Self::Item> {
        let (Entry::String(name), values) = self.rest.split_first()? else { return None };
        let (value, rest) = values.split_at_checked(entry_count(values.first()?))?;
        self.rest = rest;
        Some((name, Node::new(value)))
    }
}

/// The items of an array; see [`Node::items`].
#[derive(Clone, Debug)]
pub struct Items<'d> {
    rest: &'d [Entry<'d>],
}

impl<'d> Iterator for Items<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let (value, rest) = self.rest.split_at_checked(entry_count(self.rest.first()?))?;
        self.rest = rest;
        Some(Node::new(value))
    }
}
