//! What a change does to what a schema takes, for the eyes of a reviewer: nothing is approved by it.
//!
//! `jsonschema` compares both as sets of values, by their canonical forms; what it cannot prove is [`Effect::Unknown`]. Fetches nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jsonschema::{
    PatternOptions,
    canonical::{self, CanonicalSchema, Containment},
};
use serde_json::Value;

use super::{bounds, compile::dialect};

/// The most values that a schema may consist of to be compared: a comparison costs more than a check.
const COMPARED_VALUES_MAX: usize = 1_000;
/// What one pattern may take when compiled, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What a change does to what a schema takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It takes what it took.
    Same,
    /// It takes something that it did not take before, whatever else it refuses now.
    Wider,
    /// It takes nothing new, and refuses something, or may.
    Narrower,
    /// Cannot be told.
    Unknown,
}

impl Effect {
    /// As the management API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Wider => "wider",
            Self::Narrower => "narrower",
            Self::Unknown => "unknown",
        }
    }
}

/// What a change from `before` to `after` does.
#[must_use]
pub fn effect(before: &Value, after: &Value) -> Effect {
    // An experimental part of the library: a panic in it is one more thing that cannot be told.
    catch_unwind(AssertUnwindSafe(|| compared(before, after))).ok().flatten().unwrap_or(Effect::Unknown)
}

fn compared(before: &Value, after: &Value) -> Option<Effect> {
    let (before, after) = (canonical(before)?, canonical(after)?);
    match (before.covers(&after).ok()?, after.covers(&before).ok()?) {
        (Containment::Yes, Containment::Yes) => Some(Effect::Same),
        (Containment::Yes, _) => Some(Effect::Narrower),
        (Containment::No, _) => Some(Effect::Wider),
        (Containment::Unknown, _) => None,
    }
}

fn canonical(schema: &Value) -> Option<CanonicalSchema> {
    if bounds::check(schema).ok()? > COMPARED_VALUES_MAX {
        return None;
    }
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    let options = canonical::options().offline().with_draft(dialect(schema).ok()?).should_validate_formats(false);
    options.with_pattern_options(patterns).canonicalize(schema).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Effect, effect};
    use crate::{
        model::jsonrpc::Document,
        policy::schema::{Role, Schema},
    };

    fn any_leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            (0..4_i64).prop_map(|n| json!({ "maximum": n })),
            (0..4_i64).prop_map(|n| json!({ "type": "integer", "minimum": n })),
            (0..3_i64).prop_map(|n| json!({ "type": "string", "maxLength": n })),
            prop::collection::vec(
                prop_oneof![Just(json!(0)), Just(json!(2)), Just(json!("a")), Just(json!(null))],
                1..3
            )
            .prop_map(|list| json!({ "enum": list })),
            Just(json!({ "type": ["string", "null"] })),
            Just(json!({ "required": ["a"] })),
            any::<bool>().prop_map(Value::Bool),
        ]
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        any_leaf().prop_recursive(3, 12, 3, |inner| {
            let some = prop::collection::vec(inner.clone(), 1..3);
            prop_oneof![
                some.clone().prop_map(|list| json!({ "anyOf": list })),
                some.clone().prop_map(|list| json!({ "oneOf": list })),
                some.prop_map(|list| json!({ "allOf": list })),
                inner.clone().prop_map(|one| json!({ "not": one })),
                (inner.clone(), any::<bool>()).prop_map(|(one, more)| json!({
                    "type": "object", "properties": { "a": one }, "additionalProperties": more
                })),
                inner.prop_map(|one| json!({ "type": "array", "items": one, "maxItems": 2 })),
            ]
        })
    }

    const VALUES: [&str; 16] = [
        "null",
        "true",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "1.5",
        "\"\"",
        "\"a\"",
        "\"abc\"",
        "[]",
        "[0,\"a\"]",
        "{}",
        r#"{"a":1}"#,
        r#"{"a":"abc","b":2}"#,
    ];

    /// Which of the values a schema takes.
    fn taken(schema: &Value) -> Vec<bool> {
        let schema = Schema::compile(schema, Role::Output).unwrap();
        let takes = |text: &&str| {
            let mut scratch = Vec::new();
            let document = Document::parse(text.as_bytes(), &mut scratch).unwrap();
            schema.check(document.root()).is_ok()
        };
        VALUES.iter().map(takes).collect()
    }

    proptest! {
        #[test]
        fn what_is_proven_holds_for_every_value(before in any_schema(), after in any_schema()) {
            let told = effect(&before, &after);
            let (old, new) = (taken(&before), taken(&after));
            let gained = old.iter().zip(&new).any(|(old, new)| !old && *new);
            let lost = old.iter().zip(&new).any(|(old, new)| *old && !new);
            prop_assert!(!gained || matches!(told, Effect::Wider | Effect::Unknown), "{told:?}: {before} to {after}");
            prop_assert!(!lost || told != Effect::Same, "{before} to {after}");
        }
    }

    #[test]
    fn a_schema_that_is_too_large_to_compare_is_unknown() {
        let wide = |count: usize| json!({ "type": "object", "properties": (0..count).map(|n| (n.to_string(), json!({}))).collect::<serde_json::Map<_, _>>() });
        assert_eq!(effect(&wide(900), &wide(900)), Effect::Same);
        assert_eq!(effect(&wide(1001), &wide(1001)), Effect::Unknown);
    }
}
