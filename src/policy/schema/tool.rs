//! A tool's schemas together, and every reason for which a tool is kept but never listed (contract §6).

use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::{ParamHeader, Role, Schema, SchemaFault, params};

/// The longest name of a tool, in characters.
const NAME_CHARS_MAX: usize = 128;

/// What a tool is checked by.
#[derive(Clone, Debug)]
pub struct ToolSchemas {
    /// Its arguments.
    pub input: Arc<Schema>,
    /// Its `structuredContent`, if it has an `outputSchema`.
    pub output: Option<Arc<Schema>>,
    /// The arguments that a modern caller repeats in headers.
    pub params: Vec<ParamHeader>,
}

/// Why a tool is never listed. The text is what an approver reads as `fault`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ToolFault {
    /// No string `name`, or an empty one.
    #[error("its `name` is missing or empty")]
    NoName,
    /// A name that is too long.
    #[error("its `name` is longer than {NAME_CHARS_MAX} characters")]
    NameTooLong,
    /// A name with control characters.
    #[error("its `name` holds control characters")]
    NameUnprintable,
    /// No input schema.
    #[error("its `inputSchema` is missing")]
    NoInputSchema,
    /// An input schema that cannot be used.
    #[error("its `inputSchema` {0}")]
    Input(SchemaFault),
    /// An output schema that cannot be used.
    #[error("its `outputSchema` {0}")]
    Output(SchemaFault),
    /// An `x-mcp-header` that breaks the specification.
    #[error("its `inputSchema` {0}")]
    ParamHeader(String),
    /// A tool that can only be run as a task.
    #[error("it requires tasks (`execution.taskSupport` is `required`), which are not supported")]
    TasksRequired,
}

impl ToolSchemas {
    /// Compiles what `tool`, a whole tool object as its server sent it, is checked by.
    ///
    /// # Errors
    /// [`ToolFault`]: the tool must not be listed.
    pub fn compile(tool: &Value) -> Result<Self, ToolFault> {
        let name = tool.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()).ok_or(ToolFault::NoName)?;
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(ToolFault::NameTooLong);
        }
        if name.chars().any(char::is_control) {
            return Err(ToolFault::NameUnprintable);
        }
        if tool.pointer("/execution/taskSupport").and_then(Value::as_str) == Some("required") {
            return Err(ToolFault::TasksRequired);
        }
        let input = tool.get("inputSchema").ok_or(ToolFault::NoInputSchema)?;
        let compiled = Schema::compile(input, Role::Input).map_err(ToolFault::Input)?;
        let output = tool.get("outputSchema").map(|schema| Schema::compile(schema, Role::Output));
        Ok(Self {
            input: compiled,
            output: output.transpose().map_err(ToolFault::Output)?,
            params: params::find(input).map_err(ToolFault::ParamHeader)?,
        })
    }
}
