//! A schema, from the definition to the check.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use jsonschema::{
    Draft, PatternOptions, ReferencingError, Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind,
};
use serde_json::Value;
use thiserror::Error;

use super::{
    bounds,
    tape::{Instance, Tape, work},
    violation::{VIOLATIONS_MAX, Violation, cut, rule},
};
use crate::model::jsonrpc::Node;

/// Steps that a pattern which the linear engine refuses may take on the backtracking one (contract §6).
const BACKTRACK_STEPS_MAX: usize = 10_000;
/// What all patterns of a schema may take together when compiled, in bytes.
const PATTERN_BYTES_MAX: usize = 16 << 20;
/// What one pattern may take when compiled, in bytes.
const ONE_PATTERN_BYTES_MAX: usize = 2 << 20;

/// What a schema is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The arguments of a tool: its root must say `"type": "object"`.
    Input,
    /// The `structuredContent` of a result: any schema.
    Output,
}

/// Why a schema cannot be used, in words for the person who approves the tool (contract §6).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaFault {
    /// Neither an object nor, as an output schema may be, a boolean.
    #[error("is not a JSON object")]
    NotASchema,
    /// An input schema whose root is not `"type": "object"`.
    #[error("must have `\"type\": \"object\"` at its root")]
    NotAnObjectSchema,
    /// More bytes than a schema may have.
    #[error("is larger than {} KiB", bounds::SCHEMA_BYTES_MAX / 1024)]
    TooLarge,
    /// Nested deeper than a schema may be.
    #[error("is nested deeper than {} levels", bounds::SCHEMA_DEPTH_MAX)]
    TooDeep,
    /// More values than a schema may have.
    #[error("consists of more than {} values", bounds::SCHEMA_VALUES_MAX)]
    TooManyValues,
    /// `$ref`s that multiply or chain beyond the bounds.
    #[error("would make a single value be judged too many times, by references that multiply or chain")]
    TooMuchWork,
    /// A `$schema` that names none of the dialects that are known.
    #[error("names the dialect {0}, which is not one of 2020-12, 2019-09, draft-07, draft-06 and draft-04")]
    UnknownDialect(String),
    /// A `$ref` to something outside of the schema, which would have to be fetched.
    #[error("refers to {0}, which is not part of it; nothing is ever fetched from the network")]
    NetworkRef(String),
    /// A `$ref` within the schema that leads nowhere.
    #[error("has a reference that leads nowhere")]
    DanglingRef,
    /// Not a schema of its dialect, or a pattern that no engine takes.
    #[error("is not a valid schema: at {at} it {rule}")]
    Invalid {
        /// JSON Pointer into the schema, in backticks.
        at: String,
        /// What the dialect asks for there.
        rule: String,
    },
}

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator<Tape>,
    /// Every name that the schema itself names: what a violation may repeat.
    names: HashSet<Box<str>>,
    /// How many values it consists of.
    values: usize,
}

impl Schema {
    /// Compiles `definition` within bounds and without fetching anything (contract §6, `security.md` 1.10).
    ///
    /// # Errors
    /// [`SchemaFault`]: the schema cannot be used.
    pub fn compile(definition: &Value, role: Role) -> Result<Arc<Self>, SchemaFault> {
        match (definition, role) {
            (Value::Bool(_), Role::Output) => {}
            (Value::Object(members), Role::Input) if members.get("type") != Some(&Value::from("object")) => {
                return Err(SchemaFault::NotAnObjectSchema);
            }
            (Value::Object(_), _) => {}
            _ => return Err(SchemaFault::NotASchema),
        }
        let values = bounds::check(definition)?;
        let draft = dialect(definition)?;
        let mut patterns = Vec::new();
        bounds::patterns(definition, &mut patterns);
        patterns.sort_unstable();
        patterns.dedup();
        let share = (PATTERN_BYTES_MAX / patterns.len().max(1)).min(ONE_PATTERN_BYTES_MAX);
        // The linear engine first; the other one only for what it refuses.
        let linear = PatternOptions::regex().size_limit(share).dfa_size_limit(ONE_PATTERN_BYTES_MAX);
        let validator = match build(definition, draft, linear) {
            Err(_) if !patterns.is_empty() => {
                let backtracking = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_STEPS_MAX);
                build(definition, draft, backtracking.size_limit(share).dfa_size_limit(ONE_PATTERN_BYTES_MAX))
            }
            built => built,
        };
        let mut names = HashSet::new();
        collect_names(definition, &mut names);
        Ok(Arc::new(Self { validator: validator.map_err(|error| fault(&error))?, names, values }))
    }

    /// Checks `instance`.
    ///
    /// # Errors
    /// Up to [`VIOLATIONS_MAX`] violations; at least one.
    pub fn check(&self, instance: Node<'_>) -> Result<(), Vec<Violation>> {
        work::begin(instance, self.values);
        let valid = self.validator.is_valid(Instance::Value(instance));
        if work::is_exhausted() {
            return Err(vec![Violation::unfinished()]);
        }
        if valid { Ok(()) } else { Err(self.violations(instance)) }
    }

    #[cold]
    fn violations(&self, instance: Node<'_>) -> Vec<Violation> {
        work::begin(instance, self.values);
        // A pattern that is given up below the root makes the library look for the value in a copy that it is never given, and panic.
        let list = || self.validator.iter_errors(Instance::Value(instance)).take(VIOLATIONS_MAX).collect();
        let errors: Option<Vec<_>> = catch_unwind(AssertUnwindSafe(list)).ok();
        let Some(errors) = errors.filter(|_| !work::is_exhausted()) else { return vec![Violation::unfinished()] };
        let mut found: Vec<Violation> = Vec::new();
        for error in &errors {
            let violation = Violation::of(error, instance, &self.names);
            if !found.contains(&violation) {
                found.push(violation);
            }
        }
        if found.is_empty() {
            found.push(Violation::unnamed());
        }
        found
    }
}

fn build(
    definition: &Value,
    draft: Draft,
    patterns: PatternOptions<impl Sized>,
) -> Result<Validator<Tape>, ValidationError<'static>> {
    jsonschema::options_for::<Tape>()
        .with_draft(draft)
        .with_retriever(NothingIsFetched)
        .with_pattern_options(patterns)
        // `format` and `content*` are annotations in every dialect here (contract §6).
        .should_validate_formats(false)
        .without_content_encoding_support("base64")
        .without_content_media_type_support("application/json")
        .build(definition)
}

/// The dialect of `$schema`, by default 2020-12. An embedded resource may only name a known one too.
pub(super) fn dialect(schema: &Value) -> Result<Draft, SchemaFault> {
    let own = match schema.get("$schema") {
        None => Draft::Draft202012,
        Some(Value::String(uri)) => known_dialect(uri)?,
        Some(other) => return Err(SchemaFault::UnknownDialect(cut(&other.to_string()))),
    };
    embedded_dialects(schema)?;
    Ok(own)
}

fn known_dialect(uri: &str) -> Result<Draft, SchemaFault> {
    match Draft::from_schema_uri(uri) {
        Draft::Unknown => Err(SchemaFault::UnknownDialect(cut(uri))),
        known => Ok(known),
    }
}

fn embedded_dialects(value: &Value) -> Result<(), SchemaFault> {
    match value {
        Value::Object(members) => {
            if let (Some(Value::String(uri)), true) = (members.get("$schema"), members.contains_key("$id")) {
                known_dialect(uri)?;
            }
            members.values().try_for_each(embedded_dialects)
        }
        Value::Array(items) => items.iter().try_for_each(embedded_dialects),
        _ => Ok(()),
    }
}

/// Every name of a schema: its property names, its keywords, and what `required` and the like list.
fn collect_names(value: &Value, names: &mut HashSet<Box<str>>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                names.insert(name.as_str().into());
                collect_names(member, names);
            }
        }
        Value::Array(items) => {
            for item in items {
                names.extend(item.as_str().map(Box::from));
                collect_names(item, names);
            }
        }
        _ => {}
    }
}

/// Refuses everything that is not in the schema or one of the dialects' own documents.
struct NothingIsFetched;

impl Retrieve for NothingIsFetched {
    fn retrieve(&self, _uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched".into())
    }
}

fn fault(error: &ValidationError<'_>) -> SchemaFault {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            SchemaFault::NetworkRef(cut(uri.strip_prefix("json-schema:///").unwrap_or(uri)))
        }
        ValidationErrorKind::Referencing(ReferencingError::UnknownSpecification { specification }) => {
            SchemaFault::UnknownDialect(cut(specification))
        }
        ValidationErrorKind::Referencing(_) => SchemaFault::DanglingRef,
        ValidationErrorKind::Format { .. } => {
            SchemaFault::Invalid { at: place(error), rule: "has a pattern that no engine takes".to_owned() }
        }
        kind => SchemaFault::Invalid { at: place(error), rule: rule(kind) },
    }
}

fn place(error: &ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => "its root".to_owned(),
        pointer => cut(pointer),
    }
}
