//! Refusal or released result to bytes: the one translator (contract §2, §3, §4).
//!
//! Nothing else in the house writes an envelope, a status or the form of an answer.

use crate::{
    call::Asked,
    model::{
        jsonrpc::write_string,
        mcp::{Era, META_REFUSAL, META_SERVER_INFO, Revision},
    },
    policy::snapshot::{Resource, Settings},
    refusal::{Refusal, Surface, Voice},
};

/// How the caller wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// `application/json` only.
    Json,
    /// `text/event-stream` only.
    Sse,
    /// Either: JSON, unless the server streams.
    Both,
}

impl Takes {
    /// Reads `Accept`. It never refuses: what is not understood takes JSON. An event stream must be named; `*/*` is JSON.
    pub(super) fn read(headers: &http::HeaderMap) -> Self {
        let (mut json, mut sse) = (false, false);
        for range in
            headers.get_all(http::header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','))
        {
            let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
            let media = parts.next().unwrap_or_default();
            if parts.any(|part| is_refused(&part)) {
                continue;
            }
            match media.as_str() {
                "text/event-stream" => sse = true,
                "application/json" | "application/*" | "*/*" => json = true,
                _ => {}
            }
        }
        match (json, sse) {
            (true, true) => Self::Both,
            (false, true) => Self::Sse,
            _ => Self::Json,
        }
    }
}

/// Whether a parameter of `Accept` says "not this" (RFC 9110 §12.4.2).
fn is_refused(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").map(|weight| weight.trim_end_matches(['0', '.']));
    weight == Some("") && parameter != "q="
}

/// A whole answer, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: Option<&'static str>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// The connection ends with this answer.
    pub(super) close: bool,
}

/// `Content-Type` of JSON answers.
pub(super) const JSON: &str = "application/json";
/// `Content-Type` of streamed answers.
pub(super) const SSE: &str = "text/event-stream";

/// A refusal in the form that its row, the caller's era and its `Accept` ask for.
pub(super) fn refusal(refusal: &Refusal, asked: &Asked, settings: &Settings, request_id: &str, takes: Takes) -> Answer {
    let row = refusal.row();
    let mut answer = match row.surface {
        Surface::Http(status) => Answer {
            status,
            content_type: Some(JSON),
            headers: http_headers(refusal, settings),
            body: http_body(refusal, &message(refusal, asked, settings)),
            close: row.close,
        },
        Surface::Rpc { modern, legacy, .. } => {
            let status = if asked.era == Some(Era::Legacy) { legacy } else { modern };
            framed(status, error_message(refusal, asked, settings), takes)
        }
        Surface::ToolResult => framed(200, message_of(refusal, asked, settings, request_id), takes),
    };
    answer.close |= row.close;
    answer
}

/// A result of the gateway's own or of a server, as the caller's whole answer.
pub(super) fn result(result: &[u8], asked: &Asked, takes: Takes) -> Answer {
    framed(200, result_message(result, asked), takes)
}

/// The JSON-RPC response that carries a result.
pub(super) fn result_message(result: &[u8], asked: &Asked) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + 64);
    open(&mut out, asked);
    out.extend_from_slice(b"\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// The JSON-RPC message of a refusal once the caller's form is settled (a stream that has begun, a held 200).
pub(super) fn message_of(refusal: &Refusal, asked: &Asked, settings: &Settings, request_id: &str) -> Vec<u8> {
    match refusal.row().surface {
        Surface::ToolResult | Surface::Http(_) if asked.passed => passed_message(refusal, asked, settings),
        Surface::ToolResult | Surface::Http(_) => refused_message(refusal, asked, settings, request_id),
        Surface::Rpc { .. } => error_message(refusal, asked, settings),
    }
}

/// 202 to a notification.
pub(super) const fn accepted() -> Answer {
    Answer { status: 202, content_type: None, headers: Vec::new(), body: Vec::new(), close: false }
}

/// 204 to the preflight of an allowed origin.
pub(super) fn preflight(requested_headers: Option<&str>) -> Answer {
    let mut headers =
        vec![("access-control-allow-methods", "POST".to_owned()), ("access-control-max-age", "600".to_owned())];
    headers.push((
        "access-control-allow-headers",
        requested_headers
            .filter(|text| text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b',' | b' ' | b'_')))
            .unwrap_or("authorization, content-type, mcp-protocol-version, mcp-method, mcp-name")
            .to_owned(),
    ));
    Answer { status: 204, content_type: None, headers, body: Vec::new(), close: false }
}

/// One server-sent event of type `message`.
pub(super) fn event(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 32);
    out.extend_from_slice(b"event: message\n");
    for line in message.split(|c| *c == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        out.push(b'\n');
    }
    out.push(b'\n');
    out
}

/// A message as a whole answer in the form that the caller takes.
pub(super) fn framed(status: u16, message: Vec<u8>, takes: Takes) -> Answer {
    let (content_type, body) = match takes {
        Takes::Sse => (SSE, event(&message)),
        Takes::Json | Takes::Both => (JSON, message),
    };
    Answer { status, content_type: Some(content_type), headers: Vec::new(), body, close: false }
}

fn message(refusal: &Refusal, asked: &Asked, settings: &Settings) -> String {
    let voice = settings.voice(asked.tool_name.as_deref().unwrap_or(""));
    let connect_url = asked.server.as_ref().and_then(|server| server.connect_url());
    refusal.message(&Voice { passed: asked.passed, connect_url, ..voice })
}

/// What clients are told of OAuth (RFC 9728).
pub(super) fn metadata(resource: &Resource) -> Answer {
    let headers = vec![("cache-control", "max-age=300".to_owned())];
    let body = resource.document.clone().into_bytes();
    Answer { status: 200, content_type: Some(JSON), headers, body, close: false }
}

fn http_headers(refusal: &Refusal, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if let Some(seconds) = refusal.retry_after() {
        headers.push(("retry-after", seconds.to_string()));
    }
    match refusal {
        Refusal::Unauthenticated => {
            let metadata = settings.resource.as_ref().map(|resource| &resource.metadata_url);
            let challenge = metadata.map_or("Bearer".to_owned(), |url| format!("Bearer resource_metadata=\"{url}\""));
            headers.push(("www-authenticate", challenge));
        }
        Refusal::MethodNotAllowed => headers.push(("allow", "POST".to_owned())),
        _ => {}
    }
    headers
}

fn http_body(refusal: &Refusal, message: &str) -> Vec<u8> {
    let mut out = b"{\"error\":".to_vec();
    write_error(&mut out, refusal, message);
    out.push(b'}');
    out
}

/// `{"type":…,"code":…,"message":…}`
fn write_error(out: &mut Vec<u8>, refusal: &Refusal, message: &str) {
    let row = refusal.row();
    out.extend_from_slice(b"{\"type\":");
    write_string(out, row.kind.as_str());
    out.extend_from_slice(b",\"code\":");
    match row.code {
        Some(code) => write_string(out, code),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"message\":");
    write_string(out, message);
    out.push(b'}');
}

fn error_message(refusal: &Refusal, asked: &Asked, settings: &Settings) -> Vec<u8> {
    let Surface::Rpc { code, .. } = refusal.row().surface else { return Vec::new() };
    let mut out = Vec::with_capacity(160);
    open(&mut out, asked);
    out.extend_from_slice(format!("\"error\":{{\"code\":{code},\"message\":").as_bytes());
    write_string(&mut out, &message(refusal, asked, settings));
    match refusal {
        Refusal::MissingCapability { required } => {
            out.extend_from_slice(b",\"data\":{\"requiredCapabilities\":");
            out.extend_from_slice(required.as_bytes());
            out.push(b'}');
        }
        Refusal::UnsupportedVersion { requested } => {
            out.extend_from_slice(
                format!(",\"data\":{{\"supported\":[\"{}\"],\"requested\":", Revision::MODERN).as_bytes(),
            );
            write_string(&mut out, requested);
            out.push(b'}');
        }
        Refusal::Relayed { uri: Some(uri), .. } => {
            out.extend_from_slice(b",\"data\":{\"uri\":");
            write_string(&mut out, uri);
            out.push(b'}');
        }
        _ => {}
    }
    out.extend_from_slice(b"}}");
    out
}

/// The code of a refusal where no model reads a tool result (contract §3, last rule).
const REFUSED: i32 = -31000;

/// The refusal of a request that is passed through.
fn passed_message(refusal: &Refusal, asked: &Asked, settings: &Settings) -> Vec<u8> {
    let text = message(refusal, asked, settings);
    let mut out = Vec::with_capacity(2 * text.len() + 160);
    open(&mut out, asked);
    out.extend_from_slice(format!("\"error\":{{\"code\":{REFUSED},\"message\":").as_bytes());
    write_string(&mut out, &text);
    out.extend_from_slice(b",\"data\":{\"error\":");
    write_error(&mut out, refusal, &text);
    out.extend_from_slice(b"}}}");
    out
}

fn refused_message(refusal: &Refusal, asked: &Asked, settings: &Settings, request_id: &str) -> Vec<u8> {
    let text = message(refusal, asked, settings);
    let modern = asked.era != Some(Era::Legacy);
    let mut out = Vec::with_capacity(2 * text.len() + 384);
    open(&mut out, asked);
    out.extend_from_slice(b"\"result\":{");
    if modern {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out.extend_from_slice(b"\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":");
    write_string(&mut out, &text);
    out.extend_from_slice(b"}],\"structuredContent\":{\"error\":");
    write_error(&mut out, refusal, &text);
    out.extend_from_slice(b"},\"_meta\":{");
    if modern {
        write_string(&mut out, META_SERVER_INFO);
        out.push(b':');
        out.extend_from_slice(&crate::call::hello::server_info(settings));
        out.push(b',');
    }
    write_string(&mut out, META_REFUSAL);
    out.extend_from_slice(b":{\"code\":");
    write_string(&mut out, refusal.row().code.unwrap_or(""));
    out.extend_from_slice(b",\"request_id\":");
    write_string(&mut out, request_id);
    out.extend_from_slice(b"}}}}");
    out
}

/// `{"jsonrpc":"2.0","id":ID,`
fn open(out: &mut Vec<u8>, asked: &Asked) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(asked.id.as_deref().unwrap_or(b"null"));
    out.push(b',');
}
