//! `x-mcp-header`: which arguments a caller repeats in `Mcp-Param-*` headers (2026-07-28 tools, "x-mcp-header"; `mcp.md` A.2).

use serde_json::Value;

use super::{
    keywords::{Below, below},
    violation::cut,
};
use crate::model::mcp::HEADER_PARAM_PREFIX;

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The whole header's name in lower case, `mcp-param-…`.
    pub header: String,
    /// The names that lead to the value, from the arguments down.
    pub path: Vec<String>,
    /// How the value is written and compared.
    pub kind: ParamKind,
}

/// The type of an argument that is repeated in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Compared exactly.
    String,
    /// Compared as a number.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// Finds every annotation of an input schema.
///
/// # Errors
/// What breaks the specification, in words: a header name that is no token or comes twice, a type that is not string, integer or
/// boolean, or a place that is not reached by `properties` alone.
pub(super) fn find(input_schema: &Value) -> Result<Vec<ParamHeader>, String> {
    let mut found = Vec::new();
    under_properties(input_schema, &mut Vec::new(), &mut found)?;
    if annotations(input_schema) > found.len() {
        return Err("has an `x-mcp-header` where only a chain of `properties` may lead".to_owned());
    }
    for (index, param) in found.iter().enumerate() {
        if found.iter().skip(index + 1).any(|other| other.header == param.header) {
            return Err(format!("uses the `x-mcp-header` {} twice", cut(name_of(&param.header))));
        }
    }
    Ok(found)
}

fn under_properties(schema: &Value, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) -> Result<(), String> {
    let Some(Value::Object(properties)) = schema.get("properties") else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header") {
            found.push(param(header, property.get("type"), path)?);
        }
        under_properties(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn param(header: &Value, kind: Option<&Value>, path: &[String]) -> Result<ParamHeader, String> {
    let name = header.as_str().filter(|name| is_token(name));
    let Some(name) = name else {
        return Err(format!("has an `x-mcp-header` that is no header name: {}", cut(&header.to_string())));
    };
    let kind = match kind.and_then(Value::as_str) {
        Some("string") => ParamKind::String,
        Some("integer") => ParamKind::Integer,
        Some("boolean") => ParamKind::Boolean,
        _ => return Err(format!("has the `x-mcp-header` {} on what is no string, integer or boolean", cut(name))),
    };
    Ok(ParamHeader { header: format!("{HEADER_PARAM_PREFIX}{}", name.to_ascii_lowercase()), path: path.to_vec(), kind })
}

fn name_of(header: &str) -> &str {
    header.strip_prefix(HEADER_PARAM_PREFIX).unwrap_or(header)
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// How often `x-mcp-header` is used as a keyword, anywhere.
fn annotations(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| match (name.as_str(), below(name), member) {
                ("x-mcp-header", ..) => 1,
                (_, Below::Data, _) => 0,
                (_, Below::Named, Value::Object(named)) => named.values().map(annotations).sum(),
                _ => annotations(member),
            })
            .sum(),
        Value::Array(items) => items.iter().map(annotations).sum(),
        _ => 0,
    }
}
