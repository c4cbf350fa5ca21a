//! What a server is asked for: a call of a tool, or a request that is passed through.

use std::sync::Arc;

use super::pass;
use crate::policy::snapshot::ToolPolicy;

/// What a server is asked for.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A call of a tool.
    Tool(Arc<ToolPolicy>),
    /// A request that is passed through.
    Passed {
        /// Its method.
        method: &'static pass::Method,
        /// What `Mcp-Name` says, if the method has one.
        name: Option<String>,
    },
}

impl Subject {
    /// The method, as on the wire.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Tool(_) => "tools/call",
            Self::Passed { method, .. } => method.name,
        }
    }

    /// What `Mcp-Name` says to the server.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Tool(tool) => Some(&tool.name),
            Self::Passed { name, .. } => name.as_deref(),
        }
    }

    /// What engines and logs call it: the tool's own name, or the method.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name().unwrap_or_else(|| self.method())
    }

    /// Whether it may be answered `input_required`.
    #[must_use]
    pub const fn is_multi_round(&self) -> bool {
        match self {
            Self::Tool(_) => true,
            Self::Passed { method, .. } => method.multi_round,
        }
    }
}
