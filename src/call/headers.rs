//! Stage `headers`: do the MCP headers say what the body says? (contract §3 `-32020`, `mcp.md` A.2)
//!
//! A proxy in front may have decided by the headers; so a header that is doubled, undecodable or disagrees is refused in
//! either era, and one that is missing in the modern one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderMap;

use super::parse::Request;
use crate::{
    model::{
        jsonrpc::{Kind, Node},
        mcp::{
            Era, HEADER_METHOD, HEADER_NAME, HEADER_PROTOCOL_VERSION, META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION,
            Revision,
        },
    },
    policy::schema::{ParamHeader, ParamKind},
    refusal::{Refusal, cut},
};

/// Checks the headers of a request against its body, then the `_meta` keys that a modern request must have.
///
/// # Refuses
/// - [`Refusal::HeaderMismatch`], [`Refusal::MissingMeta`], [`Refusal::UnsupportedVersion`], in the order that the
///   conformance suite asks for.
pub fn agree(headers: &HeaderMap, request: &Request<'_>) -> Result<(), Refusal> {
    let modern = request.era == Era::Modern;
    let version = single(headers, HEADER_PROTOCOL_VERSION, "MCP-Protocol-Version")?;
    let method = single(headers, HEADER_METHOD, "Mcp-Method")?;
    let name = single(headers, HEADER_NAME, "Mcp-Name")?;
    if modern && version.is_none() {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    if method.map_or(modern, |method| method != request.method) {
        return Err(mismatch("Mcp-Method"));
    }
    agree_name(name, request)?;
    if modern { agree_meta(version, request) } else { Ok(()) }
}

fn agree_name(header: Option<&str>, request: &Request<'_>) -> Result<(), Refusal> {
    let member = match request.method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let Some(value) = request.param(member) else { return Ok(()) };
    let Some(value) = value.node.as_str() else { return Ok(()) };
    match header {
        None if request.era == Era::Modern => Err(mismatch("Mcp-Name")),
        None => Ok(()),
        Some(header) => match decode(header) {
            Some(decoded) if decoded == value => Ok(()),
            _ => Err(mismatch("Mcp-Name")),
        },
    }
}

fn agree_meta(version: Option<&str>, request: &Request<'_>) -> Result<(), Refusal> {
    let meta = request.meta.as_ref().map(|meta| meta.node);
    let asked = meta.and_then(|meta| meta.get(META_PROTOCOL_VERSION)).and_then(Node::as_str);
    let Some(asked) = asked else { return Err(Refusal::MissingMeta(META_PROTOCOL_VERSION)) };
    let capabilities = meta.and_then(|meta| meta.get(META_CLIENT_CAPABILITIES));
    if capabilities.is_none_or(|c| c.kind() != Kind::Object) {
        return Err(Refusal::MissingMeta(META_CLIENT_CAPABILITIES));
    }
    if version != Some(asked) {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    if asked != Revision::MODERN.as_str() {
        return Err(Refusal::UnsupportedVersion { requested: cut(asked, 64) });
    }
    Ok(())
}

/// Checks the `Mcp-Param-*` headers that the tool's schema declares; modern callers only.
///
/// # Refuses
/// - [`Refusal::HeaderMismatch`]: missing, doubled, undecodable, disagreeing, or present without a value in the body.
pub fn agree_params(headers: &HeaderMap, declared: &[ParamHeader], arguments: Option<Node<'_>>) -> Result<(), Refusal> {
    for param in declared {
        let header = single(headers, &param.header, &param.header)?;
        let value = arguments
            .and_then(|root| param.path.iter().try_fold(root, |node, step| node.get(step)))
            .filter(|node| node.kind() != Kind::Null);
        let agrees = match (header, value) {
            (None, None) => true,
            (Some(header), Some(value)) => decode(header).is_some_and(|text| same(&text, value, param.kind)),
            _ => false,
        };
        if !agrees {
            return Err(mismatch(&param.header));
        }
    }
    Ok(())
}

fn same(text: &str, value: Node<'_>, kind: ParamKind) -> bool {
    match kind {
        ParamKind::String => value.as_str() == Some(text),
        ParamKind::Boolean => value.as_bool().is_some_and(|b| text == if b { "true" } else { "false" }),
        ParamKind::Integer => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let canonical = !digits.is_empty()
                && digits.bytes().all(|c| c.is_ascii_digit())
                && (digits == "0" || !digits.starts_with('0'))
                && text != "-0";
            canonical
                && value
                    .as_f64()
                    .is_some_and(|n| value.as_i64().map_or_else(|| text.parse() == Ok(n), |i| text.parse() == Ok(i)))
        }
    }
}

/// The one value of a header, trimmed of optional white space.
fn single<'h>(headers: &'h HeaderMap, name: &str, shown: &str) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refusal::HeaderMismatch(shown.to_owned()));
    }
    match first.map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.trim_matches([' ', '\t']))),
        Some(Err(_)) => Err(Refusal::HeaderMismatch(shown.to_owned())),
    }
}

/// Decodes `=?base64?…?=` strictly (canonical alphabet and padding, UTF-8); anything else is literal (`mcp.md` M3).
fn decode(value: &str) -> Option<std::borrow::Cow<'_, str>> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.into()),
        Some(coded) => STANDARD.decode(coded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).map(Into::into),
    }
}

fn mismatch(header: &str) -> Refusal {
    Refusal::HeaderMismatch(header.to_owned())
}
