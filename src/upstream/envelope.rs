//! What goes upstream, as bytes and headers: the JSON-RPC envelope is ours, the arguments are spliced in as they were checked.
//!
//! Used by the data path and by the gateway's own side calls alike. Pure: no socket, no clock, no allocation but the body.
//!
//! **Invariant.** The bytes of `arguments` are copied, never re-written: what was checked is what is sent (contract §4).

use std::{borrow::Cow, fmt, io::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};

use crate::model::{
    jsonrpc::{Node, write_string},
    mcp::{
        Era, HEADER_METHOD, HEADER_NAME, HEADER_PARAM_PREFIX, HEADER_PROTOCOL_VERSION, HEADER_SESSION_ID,
        META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION, Revision,
    },
    trace::TraceContext,
};

/// The name under which the gateway introduces itself to servers.
pub const CLIENT_NAME: &str = "toolgate";
/// The version under which the gateway introduces itself to servers.
pub const CLIENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The id of one request of ours, on the wire a JSON string: servers' own requests count in integers, so the two never look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OurId(pub u64);

impl OurId {
    /// Whether `node` is this id, in value and type (contract §3).
    #[must_use]
    pub fn is(self, node: Node<'_>) -> bool {
        let digits = node.as_str().and_then(|text| text.strip_prefix('g'));
        digits.is_some_and(|digits| {
            let canonical = digits == "0" || !digits.starts_with(['0', '+']);
            canonical && digits.parse() == Ok(self.0)
        })
    }
}

impl fmt::Display for OurId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// What a request says besides name and arguments. All of it was checked by the caller; JSON is spliced as it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallMeta<'a> {
    /// `_meta.progressToken`, raw JSON: a string or an integer.
    pub progress_token: Option<&'a [u8]>,
    /// `_meta.traceparent` and `_meta.tracestate`; modern servers only.
    pub trace: Option<&'a TraceContext>,
    /// `_meta` client capabilities, raw JSON object; none: `{}`. Modern servers only.
    pub client_capabilities: Option<&'a [u8]>,
    /// `requestState` of a multi-round-trip retry, raw JSON string, opened. Modern servers only.
    pub request_state: Option<&'a [u8]>,
    /// `inputResponses` of a multi-round-trip retry, raw JSON object. Modern servers only.
    pub input_responses: Option<&'a [u8]>,
}

/// The body of a `tools/call`. `tool` is the server's own name for it, `arguments` the bytes that were checked.
#[must_use]
pub fn call_body(revision: Revision, id: OurId, tool: &str, arguments: &[u8], meta: &CallMeta<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(arguments.len() + tool.len() + 512);
    open_request(&mut out, id, "tools/call");
    out.extend_from_slice(b"\"name\":");
    write_string(&mut out, tool);
    out.extend_from_slice(b",\"arguments\":");
    out.extend_from_slice(arguments);
    close_request(out, revision, (meta, true))
}

/// The body of another request whose `params`, a raw JSON object without `_meta`, were checked.
#[must_use]
pub fn request_body(revision: Revision, id: OurId, method: &str, params: &[u8], meta: &CallMeta<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + 512);
    open_request(&mut out, id, method);
    let members = params.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or_default();
    out.extend_from_slice(members);
    close_request(out, revision, (meta, !members.is_empty()))
}

/// The body of a `tools/list`; `cursor` continues a listing.
#[must_use]
pub fn list_body(revision: Revision, id: OurId, cursor: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(384);
    open_request(&mut out, id, "tools/list");
    if let Some(cursor) = cursor {
        out.extend_from_slice(b"\"cursor\":");
        write_string(&mut out, cursor);
    }
    if revision.era() == Era::Modern {
        if cursor.is_some() {
            out.push(b',');
        }
        write_modern_meta(&mut out, &CallMeta::default());
    }
    out.extend_from_slice(b"}}");
    out
}

/// The body of the modern era probe, `server/discover`.
#[must_use]
pub fn discover_body(id: OurId) -> Vec<u8> {
    let mut out = Vec::with_capacity(384);
    open_request(&mut out, id, "server/discover");
    write_modern_meta(&mut out, &CallMeta::default());
    out.extend_from_slice(b"}}");
    out
}

/// The body of a legacy `initialize` that offers `offer` and no capability.
#[must_use]
pub fn initialize_body(id: OurId, offer: Revision) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    open_request(&mut out, id, "initialize");
    let _ = write!(
        out,
        r#""protocolVersion":"{offer}","capabilities":{{}},"clientInfo":{{"name":"{CLIENT_NAME}","version":"{CLIENT_VERSION}"}}}}}}"#
    );
    out
}

/// The body of `notifications/initialized`.
pub const INITIALIZED_BODY: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The body of the `notifications/cancelled` that stops a call on a legacy server.
#[must_use]
pub fn cancelled_body(id: OurId, reason: &str) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":""#.to_vec();
    let _ = write!(out, "{id}\",\"reason\":");
    write_string(&mut out, reason);
    out.extend_from_slice(b"}}");
    out
}

/// The body that answers a server's own request: `{}` for `ping`, `-32601` for all else. `their_id` is raw JSON.
#[must_use]
pub fn answer_body(their_id: &[u8], method: &str) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    out.extend_from_slice(their_id);
    out.extend_from_slice(match method {
        "ping" => br#","result":{}}"#,
        _ => br#","error":{"code":-32601,"message":"Method not found"}}"#,
    });
    out
}

/// What the headers of one POST say.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// The revision that is spoken. `None` on `initialize`, which bears no version header.
    pub revision: Option<Revision>,
    /// The body's `method`; sent to modern servers.
    pub method: &'a str,
    /// The tool's own name on `tools/call`; sent to modern servers.
    pub name: Option<&'a str>,
    /// Names behind `Mcp-Param-` and their values, of the approved schema's `x-mcp-header` annotations; sent to modern servers.
    pub params: &'a [(&'a str, Cow<'a, str>)],
    /// The session id; sent to legacy servers.
    pub session: Option<&'a str>,
    /// The credential that we hold; put last, so that nothing stands above it.
    pub credential: &'a [(HeaderName, HeaderValue)],
}

/// Hands every header of a POST but `Host` and `Content-Length` to `put`, which must insert and replace, not append.
pub fn put_headers(headers: &Headers<'_>, put: &mut dyn FnMut(&str, &[u8])) {
    put("content-type", b"application/json");
    put("accept", b"application/json, text/event-stream");
    put("accept-encoding", b"identity");
    match headers.revision.map(|revision| (revision, revision.era())) {
        Some((revision, Era::Modern)) => {
            put(HEADER_PROTOCOL_VERSION, revision.as_str().as_bytes());
            put(HEADER_METHOD, headers.method.as_bytes());
            if let Some(name) = headers.name {
                put(HEADER_NAME, header_text(name).as_bytes());
            }
            for (name, value) in headers.params {
                put(&format!("{HEADER_PARAM_PREFIX}{name}"), header_text(value).as_bytes());
            }
        }
        Some((revision, Era::Legacy)) => {
            if revision > Revision::V2025_03_26 {
                put(HEADER_PROTOCOL_VERSION, revision.as_str().as_bytes());
            }
            if let Some(session) = headers.session {
                put(HEADER_SESSION_ID, session.as_bytes());
            }
        }
        None => {}
    }
    for (name, value) in headers.credential {
        put(name.as_str(), value.as_bytes());
    }
}

/// Hands the names and values of a trace to `put`: the same as members of `_meta` and, to servers of both eras, as headers.
pub fn put_trace(trace: Option<&TraceContext>, put: &mut dyn FnMut(&str, &str)) {
    let Some(trace) = trace else { return };
    put("traceparent", &trace.to_string());
    if let Some(state) = &trace.state {
        put("tracestate", state);
    }
}

/// `text` as a header value: as it is where that is unambiguous, else `=?base64?…?=` (2026-07-28 transports, "Value Encoding").
#[must_use]
pub fn header_text(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("=?base64?");
    if plain { Cow::Borrowed(text) } else { Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(text))) }
}

/// The text of an argument in its `Mcp-Param-*` header, before [`header_text`]; none for null and for what no header may mirror.
#[must_use]
pub fn param_text(value: Node<'_>) -> Option<Cow<'_, str>> {
    /// Beyond 2^53 a double no longer tells neighbours apart.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if let Some(text) = value.as_str() {
        return Some(Cow::Borrowed(text));
    }
    if let Some(truth) = value.as_bool() {
        return Some(Cow::Borrowed(if truth { "true" } else { "false" }));
    }
    if let Some(number) = value.as_i64() {
        return Some(Cow::Owned(number.to_string()));
    }
    if let Some(number) = value.as_u64() {
        return Some(Cow::Owned(number.to_string()));
    }
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < EXACT_MAX)?;
    Some(Cow::Owned(format!("{:.0}", number + 0.0)))
}

/// `{"jsonrpc":"2.0","id":"gN","method":"M","params":{`
fn open_request(out: &mut Vec<u8>, id: OurId, method: &str) {
    let _ = write!(out, r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{"#);
}

/// What goes along with the members of `params` that are written already, if there are any, and the end of the request.
fn close_request(mut out: Vec<u8>, revision: Revision, (meta, any): (&CallMeta<'_>, bool)) -> Vec<u8> {
    if any && (revision.era() == Era::Modern || meta.progress_token.is_some()) {
        out.push(b',');
    }
    if revision.era() == Era::Modern {
        for (name, value) in [("inputResponses", meta.input_responses), ("requestState", meta.request_state)] {
            if let Some(value) = value {
                member(&mut out, name, value);
                out.push(b',');
            }
        }
        write_modern_meta(&mut out, meta);
    } else if let Some(token) = meta.progress_token {
        out.extend_from_slice(b"\"_meta\":{");
        member(&mut out, "progressToken", token);
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
    out
}

fn member(out: &mut Vec<u8>, name: &str, raw: &[u8]) {
    write_string(out, name);
    out.push(b':');
    out.extend_from_slice(raw);
}

/// `"_meta":{…}` of a modern request: the three keys of `mcp.md` A.4, then what the call brings.
fn write_modern_meta(out: &mut Vec<u8>, meta: &CallMeta<'_>) {
    let _ = write!(out, r#""_meta":{{"{META_PROTOCOL_VERSION}":"{}","{META_CLIENT_CAPABILITIES}":"#, Revision::MODERN);
    out.extend_from_slice(meta.client_capabilities.unwrap_or(b"{}"));
    let _ = write!(out, r#","{META_CLIENT_INFO}":{{"name":"{CLIENT_NAME}","version":"{CLIENT_VERSION}"}}"#);
    if let Some(token) = meta.progress_token {
        out.push(b',');
        member(out, "progressToken", token);
    }
    put_trace(meta.trace, &mut |name, text| {
        out.push(b',');
        write_string(out, name);
        out.push(b':');
        write_string(out, text);
    });
    out.push(b'}');
}

#[cfg(test)]
mod tests;
