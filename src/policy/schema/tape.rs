//! The tape as `jsonschema` sees it: arguments and results are validated as they were parsed, without a copy.
//!
//! Also keeps the bounds of one check, because every step of a validation asks the instance something. Once a bound is
//! reached, each value looks like `null` and each container empty, so that the validation runs out; the check then fails
//! whatever it found.

use std::{borrow::Cow, cell::Cell};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node as JsonNode, NodeIdentity, Object},
};
use serde_json::{Number, Value};

use crate::model::jsonrpc::{Items, Kind, Members, Node};

/// Steps that any check may take: questions asked of the instance, and values compared.
const STEPS_BASE: usize = 100_000;
/// Steps that a check may take beside, for each value and name of the instance.
const STEPS_PER_VALUE: usize = 200;
/// As many again for each value of the schema: an instance may be held against every part of it, but not over and over.
const STEPS_PER_PAIR: usize = 2;
/// Steps that no check may exceed: a fraction of a second.
const STEPS_MAX: usize = 50_000_000;
/// Stack that one check may use, in bytes; half of a thread's.
const STACK_BYTES_MAX: usize = 1 << 20;

/// The representation.
pub(super) struct Tape;

/// A value of the tape, or the name of a member on its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instance<'a> {
    Value(Node<'a>),
    Name(&'a str),
}

/// The bounds of the check that this thread is in.
pub(super) mod work {
    use super::{Cell, Node, STACK_BYTES_MAX, STEPS_BASE, STEPS_MAX, STEPS_PER_PAIR, STEPS_PER_VALUE};

    thread_local! {
        static STEPS_LEFT: Cell<usize> = const { Cell::new(0) };
        static STACK_START: Cell<usize> = const { Cell::new(0) };
    }

    /// Begins a check of `instance` against a schema of so many values.
    pub(in super::super) fn begin(instance: Node<'_>, schema_values: usize) {
        let per_value = schema_values.saturating_mul(STEPS_PER_PAIR).saturating_add(STEPS_PER_VALUE);
        let steps = instance.size().saturating_mul(per_value).saturating_add(STEPS_BASE);
        STEPS_LEFT.set(steps.min(STEPS_MAX));
        let here = 0u8;
        STACK_START.set(std::ptr::from_ref(&here).addr());
    }

    /// Whether a bound was reached since [`begin`].
    pub(in super::super) fn is_exhausted() -> bool {
        STEPS_LEFT.get() == 0
    }

    /// Takes some steps; whether they were left.
    #[inline]
    pub(super) fn take(steps: usize) -> bool {
        let here = 0u8;
        let used = STACK_START.get().abs_diff(std::ptr::from_ref(&here).addr());
        let left = if used <= STACK_BYTES_MAX { STEPS_LEFT.get().saturating_sub(steps) } else { 0 };
        STEPS_LEFT.set(left);
        left > 0
    }
}

impl<'a> Instance<'a> {
    /// The value, while there are steps left.
    #[inline]
    fn node(self) -> Option<Node<'a>> {
        match self {
            Self::Value(node) if work::take(1) => Some(node),
            _ => None,
        }
    }
}

impl Json for Tape {
    type Node<'a> = Instance<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = ();

    /// A lookup walks the members, so one pass for several names is always cheaper.
    const KEYS_PER_LOOKUP: usize = 64;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Instance<'_>) -> T) -> T {
        f(Instance::Name(string))
    }
}

impl<'a> JsonNode<'a, Tape> for Instance<'a> {
    type Object = ObjectOf<'a>;
    type Array = ArrayOf<'a>;
    type Number = Number;

    #[inline]
    fn as_object(&self) -> Option<ObjectOf<'a>> {
        self.node().filter(|node| node.kind() == Kind::Object).map(ObjectOf)
    }

    #[inline]
    fn as_array(&self) -> Option<ArrayOf<'a>> {
        self.node().filter(|node| node.kind() == Kind::Array).map(ArrayOf)
    }

    #[inline]
    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Name(name) => Some(Cow::Borrowed(name)),
            Self::Value(_) => self.node()?.as_str().map(Cow::Borrowed),
        }
    }

    #[inline]
    fn as_number(&self) -> Option<Number> {
        number(self.node()?)
    }

    #[inline]
    fn as_boolean(&self) -> Option<bool> {
        self.node()?.as_bool()
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.json_type() == JsonType::Null
    }

    #[inline]
    fn is_number(&self) -> bool {
        self.json_type() == JsonType::Number
    }

    #[inline]
    fn json_type(&self) -> JsonType {
        if let Self::Name(_) = self {
            return JsonType::String;
        }
        match self.node().map(Node::kind) {
            None | Some(Kind::Null) => JsonType::Null,
            Some(Kind::Bool) => JsonType::Boolean,
            Some(Kind::Number) => JsonType::Number,
            Some(Kind::String) => JsonType::String,
            Some(Kind::Array) => JsonType::Array,
            Some(Kind::Object) => JsonType::Object,
        }
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        let text = self.as_string()?;
        let bytes = text.len() as u64;
        // A character takes one to four bytes: most lengths are decided without counting.
        if bytes < min || bytes.div_ceil(4) > max {
            return Some(false);
        }
        if min <= bytes.div_ceil(4) && bytes <= max {
            return Some(true);
        }
        Some((min..=max).contains(&(text.chars().count() as u64)))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match self {
            Self::Name(name) => expected.as_str() == Some(name),
            Self::Value(node) => equal(*node, expected),
        }
    }

    /// Only ever asked for to be shown in an error, which is never done here: no copy of a value is kept.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(Value::Null)
    }

    /// Asked for at every `$ref`, so a reference that leads nowhere near the instance counts as well.
    #[inline]
    fn identity(&self) -> Option<NodeIdentity> {
        work::take(1);
        Some(match self {
            Self::Value(node) => NodeIdentity::new(node.address()),
            Self::Name(name) => NodeIdentity::tagged(name.as_ptr().addr(), 1),
        })
    }

    #[inline]
    fn container_identity(&self) -> Option<NodeIdentity> {
        match self {
            Self::Value(node) if matches!(node.kind(), Kind::Object | Kind::Array) => self.identity(),
            _ => None,
        }
    }
}

/// An object of the tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectOf<'a>(Node<'a>);

/// Members, while there are steps left.
pub(super) struct MembersOf<'a>(Members<'a>);

/// An array of the tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayOf<'a>(Node<'a>);

/// Items, while there are steps left.
pub(super) struct ItemsOf<'a>(Items<'a>);

impl<'a> Object<'a, Tape> for ObjectOf<'a> {
    type Node = Instance<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersOf<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn get(&self, key: &Box<str>) -> Option<Instance<'a>> {
        work::take(1 + self.0.len() / 8).then(|| self.0.get(key)).flatten().map(Instance::Value)
    }

    fn members(&self) -> MembersOf<'a> {
        MembersOf(self.0.members())
    }
}

impl<'a> Iterator for MembersOf<'a> {
    type Item = (&'a str, Instance<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        work::take(1).then(|| self.0.next()).flatten().map(|(name, value)| (name, Instance::Value(value)))
    }
}

impl<'a> Array<'a, Tape> for ArrayOf<'a> {
    type Node = Instance<'a>;
    type ElementsIter = ItemsOf<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> ItemsOf<'a> {
        ItemsOf(self.0.items())
    }

    fn is_unique(&self) -> bool {
        if !work::take(self.0.size()) {
            return false;
        }
        let items: Vec<Value> = self.0.items().map(Node::to_value).collect();
        jsonschema::json::unique::is_unique(&items)
    }
}

impl<'a> Iterator for ItemsOf<'a> {
    type Item = Instance<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        work::take(1).then(|| self.0.next()).flatten().map(Instance::Value)
    }
}

fn number(node: Node<'_>) -> Option<Number> {
    match (node.as_u64(), node.as_i64()) {
        (Some(value), _) => Some(Number::from(value)),
        (None, Some(value)) => Some(Number::from(value)),
        (None, None) => Number::from_f64(node.as_f64()?),
    }
}

/// Equality as JSON Schema means it: numbers by value, members in any order.
fn equal(node: Node<'_>, expected: &Value) -> bool {
    if !work::take(1) {
        return false;
    }
    match expected {
        Value::Null => node.kind() == Kind::Null,
        Value::Bool(expected) => node.as_bool() == Some(*expected),
        Value::String(expected) => node.as_str() == Some(expected),
        Value::Number(expected) => {
            number(node).is_some_and(|number| jsonschema::json::cmp::equal_numbers(&number, expected))
        }
        Value::Array(expected) => {
            node.kind() == Kind::Array
                && node.len() == expected.len()
                && node.items().zip(expected).all(|(item, expected)| equal(item, expected))
        }
        Value::Object(expected) => {
            node.kind() == Kind::Object
                && node.len() == expected.len()
                && node.members().all(|(name, value)| expected.get(name).is_some_and(|expected| equal(value, expected)))
        }
    }
}
