//! Stage `arguments`: do they match the schema that was approved? (contract §4 `invalid_tool_arguments`)
//!
//! Reports where and which rule, never a value.

use crate::{
    model::jsonrpc::{Kind, Spanned},
    policy::{
        schema::{Schema, Violation},
        snapshot::ToolPolicy,
    },
    refusal::{ArgumentFault, Refusal},
};

/// Checks `arguments` (absent means `{}`) against the approved inputSchema.
///
/// # Refuses
/// - [`Refusal::InvalidArguments`]: `null` or not an object, over `bytes_max` as received, a schema that cannot be used,
///   or a mismatch with up to 8 places.
pub fn check(tool: &ToolPolicy, arguments: &Spanned<'_>, bytes_max: u64) -> Result<(), Refusal> {
    let refuse = |fault| Err(Refusal::InvalidArguments(fault));
    if arguments.node.kind() != Kind::Object {
        return refuse(ArgumentFault::NotAnObject);
    }
    if u64::try_from(arguments.span.len()).unwrap_or(u64::MAX) > bytes_max {
        return refuse(ArgumentFault::TooLarge(bytes_max));
    }
    match &tool.schemas {
        Err(reason) => refuse(ArgumentFault::Schema(reason.clone())),
        Ok(schemas) => against(&schemas.input, arguments).or_else(|rules| refuse(ArgumentFault::Mismatch(rules))),
    }
}

/// Checks a value against a schema; the violations as `pointer: rule`.
///
/// # Errors
/// The lines of up to 8 violations.
pub fn against(schema: &Schema, value: &Spanned<'_>) -> Result<(), Vec<String>> {
    schema.check(value.node).map_err(|violations| violations.iter().map(line).collect())
}

fn line(violation: &Violation) -> String {
    let at = if violation.pointer.is_empty() { "/" } else { &violation.pointer };
    format!("{at}: {}", violation.rule)
}
