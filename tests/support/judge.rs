//! What the gateway must never do towards a server (contract §3, §4; `mcp.md` A.4): asked of every request that the mock server reads.

use serde_json::Value;

use super::{
    answering::PROTOCOL_VERSION,
    upstream::{Seen, Speaks, State},
};

/// Headers that a gateway may send besides `Mcp-*` and its credential.
const ALLOWED: &[&str] = &[
    "host",
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
    "connection",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-session-id",
];

/// The faults of one request.
pub fn faults(state: &State, seen: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    headers(state, seen, &mut faults);
    if seen.message.is_object() {
        envelope(&seen.message, &mut faults);
        if seen.message["params"]["_meta"].get(PROTOCOL_VERSION).is_some() {
            modern(seen, &mut faults);
        } else if seen.message.get("method").is_some() {
            legacy(state, seen, &mut faults);
        }
    } else if seen.head.start.starts_with("POST") {
        faults.push("a body that is no JSON object".to_owned());
    }
    let what = format!("{} {}", seen.head.start, seen.method());
    faults.into_iter().map(|fault| format!("{what}: {fault}")).collect()
}

fn headers(state: &State, seen: &Seen, faults: &mut Vec<String>) {
    let head = &seen.head;
    for (name, value) in &head.headers {
        let lower = name.to_ascii_lowercase();
        let credential = state.credential.as_ref().is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        if !ALLOWED.contains(&lower.as_str()) && !lower.starts_with("mcp-param-") && !credential {
            faults.push(format!("header {name}: {value}"));
        }
        if head.all(name).len() > 1 {
            faults.push(format!("header {name} twice"));
        }
    }
    if !head.start.starts_with("POST") {
        return;
    }
    let length = seen.body.len().to_string();
    let http2 = head.start.ends_with("HTTP/2");
    if head.get("content-length") != Some(&length) && !(http2 && head.get("content-length").is_none()) {
        faults.push(format!("Content-Length {:?} for {length} bytes", head.get("content-length")));
    }
    let expected = [("content-type", "application/json"), ("accept-encoding", "identity")];
    for (name, value) in expected {
        if head.get(name) != Some(value) {
            faults.push(format!("{name} is {:?}, not {value:?}", head.get(name)));
        }
    }
    let accept = head.get("accept").unwrap_or_default();
    if !accept.contains("application/json") || !accept.contains("text/event-stream") {
        faults.push(format!("accept is {accept:?}"));
    }
}

fn envelope(message: &Value, faults: &mut Vec<String>) {
    let allowed = ["jsonrpc", "id", "method", "params", "result", "error"];
    for name in message.as_object().into_iter().flatten().map(|(name, _)| name) {
        if !allowed.contains(&name.as_str()) {
            faults.push(format!("member {name:?} in the envelope"));
        }
    }
    if message["jsonrpc"] != "2.0" {
        faults.push("jsonrpc is not \"2.0\"".to_owned());
    }
    if message["method"] == "tools/call" {
        let allowed = ["name", "arguments", "_meta", "inputResponses", "requestState"];
        for name in message["params"].as_object().into_iter().flatten().map(|(name, _)| name) {
            if !allowed.contains(&name.as_str()) {
                faults.push(format!("member {name:?} in params"));
            }
        }
        if !message["params"]["arguments"].is_object() {
            faults.push("arguments are no object".to_owned());
        }
        if !(message["id"].is_string() || message["id"].is_i64() || message["id"].is_u64()) {
            faults.push(format!("id {}", message["id"]));
        }
    }
}

fn modern(seen: &Seen, faults: &mut Vec<String>) {
    if seen.header("mcp-protocol-version") != Some("2026-07-28") {
        faults.push(format!("version header {:?}", seen.header("mcp-protocol-version")));
    }
    if seen.header("mcp-method") != Some(seen.method()) {
        faults.push(format!("Mcp-Method {:?}", seen.header("mcp-method")));
    }
    if seen.method() == "tools/call" {
        let name = seen.header("mcp-name").unwrap_or_default();
        if decode(name).as_deref() != Some(seen.tool()) {
            faults.push(format!("Mcp-Name {name:?} for {:?}", seen.tool()));
        }
    }
    if seen.header("mcp-session-id").is_some() {
        faults.push("a session id to a modern server".to_owned());
    }
    if !seen.message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_object() {
        faults.push("no clientCapabilities".to_owned());
    }
}

fn legacy(state: &State, seen: &Seen, faults: &mut Vec<String>) {
    let version = seen.header("mcp-protocol-version");
    if seen.method() == "initialize" {
        if version.is_some() || seen.header("mcp-session-id").is_some() {
            faults.push("initialize with a version or session header".to_owned());
        }
    } else if state.speaks != Speaks::Modern {
        let expected = (state.revision != "2025-03-26").then_some(state.revision);
        if version != expected {
            faults.push(format!("version header {version:?}, settled {:?}", state.revision));
        }
    }
}

/// Decodes the `=?base64?…?=` form of a header value.
fn decode(value: &str) -> Option<String> {
    use base64::Engine;
    match value.strip_prefix("=?base64?").and_then(|v| v.strip_suffix("?=")) {
        Some(text) => String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}
