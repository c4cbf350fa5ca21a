//! Where and how a value breaks a schema, in words that repeat no value.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
};

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use crate::model::jsonrpc::{Kind, Node};

/// The most violations that one check reports (contract §4).
pub const VIOLATIONS_MAX: usize = 8;
/// The longest text of the schema that a rule repeats, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Checks of this process that were given up.
static OVERRUNS: AtomicU64 = AtomicU64::new(0);

/// How many checks of this process were given up so far (contract §6: counted).
#[must_use]
pub fn overruns() -> u64 {
    OVERRUNS.load(Ordering::Relaxed)
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer to the value, or to the nearest one above it whose name the schema knows; empty for the whole.
    pub pointer: String,
    /// What the schema asks for there.
    pub rule: String,
    /// The check could not be finished within its bounds, and so failed (contract §6).
    pub overrun: bool,
}

impl Violation {
    /// A check that was given up.
    pub(super) fn unfinished() -> Self {
        OVERRUNS.fetch_add(1, Ordering::Relaxed);
        Self { pointer: String::new(), rule: "takes too much work to check".to_owned(), overrun: true }
    }

    /// A check that failed for a reason that cannot be told.
    pub(super) fn unnamed() -> Self {
        Self { pointer: String::new(), rule: "does not match the schema".to_owned(), overrun: false }
    }

    /// Describes `error`, which `instance` made, to a reader who knows the names `known`.
    pub(super) fn of(error: &ValidationError<'_>, instance: Node<'_>, known: &HashSet<Box<str>>) -> Self {
        use ValidationErrorKind::{BacktrackLimitExceeded, RegexEngineFailure};
        let overrun = matches!(error.kind(), BacktrackLimitExceeded { .. } | RegexEngineFailure { .. });
        if overrun {
            OVERRUNS.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            pointer: known_pointer(error.instance_path().as_str(), instance, known),
            rule: rule(error.kind()),
            overrun,
        }
    }
}

/// The longest beginning of `pointer` that consists of indices and of names that the schema knows.
fn known_pointer(pointer: &str, instance: Node<'_>, known: &HashSet<Box<str>>) -> String {
    let mut shown = 0;
    let mut node = Some(instance);
    for segment in pointer.split('/').skip(1) {
        let below = match node {
            Some(array) if array.kind() == Kind::Array => {
                segment.parse().ok().and_then(|index| array.items().nth(index))
            }
            Some(object) => {
                let name = segment.replace("~1", "/").replace("~0", "~");
                known.contains(name.as_str()).then(|| object.get(&name)).flatten()
            }
            None => None,
        };
        if below.is_none() {
            break;
        }
        node = below;
        shown += 1 + segment.len();
    }
    pointer.get(..shown).unwrap_or_default().to_owned()
}

/// What a rule of a schema asks for. Repeats the schema at most, never the instance.
pub(super) fn rule(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as K;
    match kind {
        K::Type { kind: TypeKind::Single(one) } => format!("must be of type {one}"),
        K::Type { kind: TypeKind::Multiple(several) } => {
            let names: Vec<String> = several.iter().map(|one| one.to_string()).collect();
            format!("must be of type {}", names.join(" or "))
        }
        K::Required { property } => format!("must have the member {}", shown(property)),
        K::Enum { options } => format!("must be one of {}", shown(options)),
        K::Constant { expected_value } => format!("must be {}", shown(expected_value)),
        K::Minimum { limit } => format!("must be at least {}", shown(limit)),
        K::Maximum { limit } => format!("must be at most {}", shown(limit)),
        K::ExclusiveMinimum { limit } => format!("must be more than {}", shown(limit)),
        K::ExclusiveMaximum { limit } => format!("must be less than {}", shown(limit)),
        K::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        K::MinLength { limit } => format!("must be at least {limit} characters long"),
        K::MaxLength { limit } => format!("must be at most {limit} characters long"),
        K::MinItems { limit } => format!("must have at least {limit} items"),
        K::MaxItems { limit } => format!("must have at most {limit} items"),
        K::AdditionalItems { limit } => format!("must have at most {limit} items"),
        K::MinProperties { limit } => format!("must have at least {limit} members"),
        K::MaxProperties { limit } => format!("must have at most {limit} members"),
        K::Pattern { pattern } => format!("must match the pattern {}", cut(pattern)),
        K::BacktrackLimitExceeded { .. } | K::RegexEngineFailure { .. } => {
            "takes too much work to match against its pattern".to_owned()
        }
        K::AnyOf { .. } | K::OneOfNotValid { .. } => "must match one of the allowed forms".to_owned(),
        K::OneOfMultipleValid { .. } => "must match only one of the allowed forms".to_owned(),
        _ => plain_rule(kind).to_owned(),
    }
}

/// The rules that have nothing to fill in.
const fn plain_rule(kind: &ValidationErrorKind) -> &'static str {
    use ValidationErrorKind as K;
    match kind {
        K::AdditionalProperties { .. } | K::UnevaluatedProperties { .. } => "has members that are not allowed",
        K::UnevaluatedItems { .. } => "has items that are not allowed",
        K::PropertyNames { .. } => "has a member whose name is not allowed",
        K::FalseSchema => "must not be there",
        K::Not { .. } => "must not have a form that is excluded",
        K::Contains => "must contain an item of the demanded form",
        K::UniqueItems => "must not have the same item twice",
        K::Referencing(_) => "has a rule that leads nowhere",
        _ => "does not match the schema",
    }
}

fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// Text of the schema in backticks, hidden characters made visible, of a bounded length.
pub(super) fn cut(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        match c {
            _ if count == SHOWN_CHARS_MAX => {
                shown.push('…');
                break;
            }
            '"' | '\'' | '\\' => shown.push(c),
            '`' => shown.push('\''),
            _ => shown.extend(c.escape_debug()),
        }
    }
    format!("`{shown}`")
}
