//! What a schema may cost before it is compiled: size, depth, and how often it makes one value be judged anew.
//!
//! `$ref` below `allOf` can double the work with every definition. So each place of the schema is played through as a validator
//! would, on paper: every subschema that judges the same value counts once each time it is reached, and the sum is bounded.
//! Subschemas that judge another value (a member, an item) begin a new count; what they add up to is bounded while
//! checking, in [`super::tape`].

use std::collections::HashMap;

use serde_json::{Map, Value};
use url::Url;

use super::SchemaFault;

/// The largest schema, in bytes of compact JSON.
pub(super) const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// The deepest schema, in levels of arrays and objects.
pub(super) const SCHEMA_DEPTH_MAX: usize = 64;
/// The most values that a schema may consist of.
pub(super) const SCHEMA_VALUES_MAX: usize = 10_000;
/// The most times that all places of a schema together may judge a value anew.
pub(super) const SCHEMA_STEPS_MAX: usize = 100_000;
/// The longest chain of subschemas that judge the same value.
pub(super) const SCHEMA_CHAIN_MAX: usize = 64;

/// Checks every bound; gives the number of values that the schema consists of.
pub(super) fn check(schema: &Value) -> Result<usize, SchemaFault> {
    let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if bytes > SCHEMA_BYTES_MAX {
        return Err(SchemaFault::TooLarge);
    }
    let mut values = 0;
    measure(schema, 0, &mut values)?;
    let mut play = Play { index: Index::of(schema), steps_left: SCHEMA_STEPS_MAX, chain: Vec::new() };
    play.every_place(schema)?;
    Ok(values)
}

/// Every text that the schema gives as a pattern.
pub(super) fn patterns<'s>(schema: &'s Value, found: &mut Vec<&'s str>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("pattern", Value::String(pattern)) => found.push(pattern),
                    ("patternProperties", Value::Object(by_pattern)) => {
                        found.extend(by_pattern.keys().map(String::as_str))
                    }
                    _ => {}
                }
                patterns(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| patterns(item, found)),
        _ => {}
    }
}

fn measure(value: &Value, depth: usize, values: &mut usize) -> Result<(), SchemaFault> {
    *values += 1;
    if *values > SCHEMA_VALUES_MAX {
        return Err(SchemaFault::TooManyValues);
    }
    let depth = depth + usize::from(value.is_array() || value.is_object());
    if depth > SCHEMA_DEPTH_MAX {
        return Err(SchemaFault::TooDeep);
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| measure(item, depth, values)),
        Value::Object(members) => members.values().try_for_each(|member| measure(member, depth, values)),
        _ => Ok(()),
    }
}

struct Play<'s> {
    index: Index<'s>,
    steps_left: usize,
    /// The subschemas that judge the same value now, outermost first.
    chain: Vec<usize>,
}

impl<'s> Play<'s> {
    fn every_place(&mut self, value: &'s Value) -> Result<(), SchemaFault> {
        match value {
            Value::Object(members) => {
                self.judge(value)?;
                members.values().try_for_each(|member| self.every_place(member))
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.every_place(item)),
            _ => Ok(()),
        }
    }

    /// One evaluation of `schema`, with every subschema that judges the same value.
    fn judge(&mut self, schema: &'s Value) -> Result<(), SchemaFault> {
        let Value::Object(members) = schema else { return Ok(()) };
        let place = address(schema);
        if self.chain.contains(&place) {
            return Ok(());
        }
        self.steps_left = self.steps_left.checked_sub(1).ok_or(SchemaFault::TooMuchWork)?;
        if self.chain.len() >= SCHEMA_CHAIN_MAX {
            return Err(SchemaFault::TooMuchWork);
        }
        self.chain.push(place);
        for (name, value) in members {
            match (name.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(items)) => {
                    items.iter().try_for_each(|item| self.judge(item))?
                }
                ("not" | "if" | "then" | "else", _) => self.judge(value)?,
                ("dependentSchemas" | "dependencies", Value::Object(by_name)) => {
                    by_name.values().try_for_each(|schema| self.judge(schema))?;
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    for target in self.index.resolve(schema, reference) {
                        self.judge(target)?;
                    }
                }
                _ => {}
            }
        }
        self.chain.pop();
        Ok(())
    }
}

/// Where references lead.
struct Index<'s> {
    /// The base URI of each object, by its address.
    bases: HashMap<usize, String>,
    /// What each URI without fragment names.
    resources: HashMap<String, &'s Value>,
    /// What each anchor names; a dynamic one may name several.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

/// The base of a schema that names none.
const BASE: &str = "json-schema:///";

impl<'s> Index<'s> {
    fn of(schema: &'s Value) -> Self {
        let mut index = Self { bases: HashMap::new(), resources: HashMap::new(), anchors: HashMap::new() };
        index.resources.insert(BASE.to_owned(), schema);
        index.add(schema, BASE);
        index
    }

    fn add(&mut self, value: &'s Value, base: &str) {
        match value {
            Value::Object(members) => {
                let own = self.name(value, members, base);
                let base = own.as_deref().unwrap_or(base);
                self.bases.insert(address(value), base.to_owned());
                members.values().for_each(|member| self.add(member, base));
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item, base)),
            _ => {}
        }
    }

    /// Records what `value` is called; its own base, if it has one.
    fn name(&mut self, value: &'s Value, members: &'s Map<String, Value>, base: &str) -> Option<String> {
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(anchor)) = members.get(keyword) {
                self.anchors.entry(anchor).or_default().push(value);
            }
        }
        let Some(Value::String(id)) = members.get("$id").or_else(|| members.get("id")) else { return None };
        if let Some(anchor) = id.strip_prefix('#') {
            self.anchors.entry(anchor).or_default().push(value);
            return None;
        }
        let own = without_fragment(&join(base, id)).to_owned();
        self.resources.insert(own.clone(), value);
        Some(own)
    }

    fn resolve(&self, from: &Value, reference: &str) -> Vec<&'s Value> {
        let base = self.bases.get(&address(from)).map_or(BASE, String::as_str);
        let target = join(base, reference);
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let fragment = percent_encoding::percent_decode_str(fragment).decode_utf8_lossy();
        match self.resources.get(without_fragment(&target)) {
            Some(resource) if fragment.is_empty() || fragment.starts_with('/') => {
                resource.pointer(&fragment).into_iter().collect()
            }
            _ => self.anchors.get(&*fragment).cloned().unwrap_or_default(),
        }
    }
}

fn join(base: &str, reference: &str) -> String {
    let joined = Url::parse(base).and_then(|base| base.join(reference)).or_else(|_| Url::parse(reference));
    joined.map_or_else(|_| reference.to_owned(), String::from)
}

fn without_fragment(uri: &str) -> &str {
    uri.split_once('#').map_or(uri, |(head, _)| head)
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}
