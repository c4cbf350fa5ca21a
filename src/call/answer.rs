//! Stage `answer`: is this message of the server's the answer to our request, and what kind? (contract §3 "Eras")
//!
//! Messages are told apart by `method` first: a server's own request may bear our id. Knows nothing of tools.

use crate::{
    model::jsonrpc::{Document, Kind, Node, Spanned},
    refusal::{Refusal, Unavailable},
};

/// A message from a server.
#[derive(Debug)]
pub enum Heard<'d> {
    /// A successful response with our id; an object.
    Result(Spanned<'d>),
    /// An error response with our id.
    Error {
        /// `error.code`
        code: i32,
        /// `error.message`, untouched.
        message: &'d str,
        /// `error.data`, if any.
        data: Option<Spanned<'d>>,
    },
    /// The server's own request to the client.
    ServerRequest {
        /// Its id as written.
        id: &'d [u8],
        /// Its method.
        method: &'d str,
    },
    /// A notification.
    Notification {
        /// Its method.
        method: &'d str,
        /// `params`, if any.
        params: Option<Spanned<'d>>,
    },
}

/// Which ids an error response may bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// Ours, value and type.
    Ours,
    /// Ours, null, absent or `"server-error"`: the body of an HTTP 4xx (contract §4 `upstream_rejected`).
    OursOrNone,
}

/// Reads one message of a server's; `our_id` is the id we sent, a string.
///
/// # Refuses
/// - [`Unavailable::NotMcp`]: another id (value or type), `result` with `error`, neither, a batch, a malformed error.
pub fn hear<'d>(document: &'d Document<'_>, our_id: &str, rule: IdRule) -> Result<Heard<'d>, Refusal> {
    let root = document.spanned_root();
    let is_2_0 = root.get("jsonrpc").is_some_and(|v| v.node.as_str() == Some("2.0"));
    if root.node.kind() != Kind::Object || !is_2_0 {
        return Err(not_mcp());
    }
    let id = root.get("id");
    if let Some(method) = root.get("method") {
        let method = method.node.as_str().ok_or_else(not_mcp)?;
        return Ok(match id {
            Some(id) => Heard::ServerRequest { id: id.raw(), method },
            None => Heard::Notification { method, params: root.get("params") },
        });
    }
    let ours = id.as_ref().is_some_and(|id| id.node.as_str() == Some(our_id));
    match (root.get("result"), root.get("error")) {
        (Some(result), None) if ours && result.node.kind() == Kind::Object => Ok(Heard::Result(result)),
        (None, Some(error)) if ours || (rule == IdRule::OursOrNone && is_no_id(id.as_ref())) => read_error(&error),
        _ => Err(not_mcp()),
    }
}

fn is_no_id(id: Option<&Spanned<'_>>) -> bool {
    id.is_none_or(|id| id.node.kind() == Kind::Null || id.node.as_str() == Some("server-error"))
}

fn read_error<'d>(error: &Spanned<'d>) -> Result<Heard<'d>, Refusal> {
    let code = error.node.get("code").and_then(Node::as_i64).and_then(|code| i32::try_from(code).ok());
    let message = error.node.get("message").and_then(Node::as_str);
    match (code, message) {
        (Some(code), Some(message)) => Ok(Heard::Error { code, message, data: error.get("data") }),
        _ => Err(not_mcp()),
    }
}

/// The refusal of something that is not MCP.
#[must_use]
pub const fn not_mcp() -> Refusal {
    Refusal::UpstreamUnavailable(Unavailable::NotMcp)
}
