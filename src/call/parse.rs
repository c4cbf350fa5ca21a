//! Stage `parse`: is the body one JSON-RPC request or notification, and of which era? (contract §3, `mcp.md` A.2, A.3)
//!
//! Looks at the envelope only: `jsonrpc`, `id`, `method`, and which members there are. Knows nothing of tools.
//!
//! **Invariant.** A member that another reader might take for one of the envelope's (other letter case, a folded letter,
//! a NUL) is refused, so that what was read here is what any server reads (security: parser differentials).

use http::HeaderMap;

use crate::{
    model::{
        jsonrpc::{Document, JsonFault, Kind, Spanned},
        mcp::{Era, HEADER_PROTOCOL_VERSION, META_PROTOCOL_VERSION, Revision},
    },
    refusal::Refusal,
};

/// What a body is.
#[derive(Debug)]
pub enum Message<'d> {
    /// A request: it has an id and wants one answer.
    Request(Request<'d>),
    /// A notification: accepted with 202, whatever it says.
    Notification {
        /// Its method.
        method: &'d str,
        /// The era by its own account.
        era: Era,
    },
}

/// A request's envelope.
#[derive(Clone, Debug)]
pub struct Request<'d> {
    /// The id as written, a JSON string or integer.
    pub id: &'d [u8],
    /// The method.
    pub method: &'d str,
    /// `params`, an object if present.
    pub params: Option<Spanned<'d>>,
    /// `params._meta`, an object if present.
    pub meta: Option<Spanned<'d>>,
    /// The era whose rules apply.
    pub era: Era,
    /// The caller's revision; for a modern request the only one served, whatever was asked for.
    pub revision: Revision,
}

impl<'d> Request<'d> {
    /// A member of `params`.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<Spanned<'d>> {
        self.params.as_ref().and_then(|params| params.get(name))
    }
}

/// Members of the envelope and of `params` that decide something.
const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const PARAMS: [&str; 7] = ["name", "arguments", "_meta", "cursor", "uri", "requestState", "inputResponses"];

/// Turns a fault of the JSON into its refusal.
#[must_use]
pub const fn json_refusal(fault: &JsonFault) -> Refusal {
    match fault {
        JsonFault::NotJson { position, .. } => Refusal::ParseError { position: *position },
        JsonFault::Duplicate { .. } => Refusal::InvalidRpc("an object names a member twice"),
    }
}

/// Reads the envelope of a parsed body.
///
/// # Refuses
/// - [`Refusal::InvalidRpc`]: a batch, a posted response, a bad `id`, `jsonrpc` not `"2.0"`, a look-alike member.
/// - [`Refusal::HeaderMismatch`]: `MCP-Protocol-Version` is doubled or not text.
/// - [`Refusal::InvalidParams`]: `params` or `_meta` is not an object.
///
/// `read_id` is set as soon as the envelope is that of a request, so that a later refusal can bear it.
pub fn message<'d>(
    document: &'d Document<'_>,
    headers: &HeaderMap,
    read_id: &mut Option<Vec<u8>>,
) -> Result<Message<'d>, Refusal> {
    let root = document.spanned_root();
    if root.node.kind() == Kind::Array {
        return Err(Refusal::InvalidRpc("batches are not served"));
    }
    if root.node.kind() != Kind::Object {
        return Err(Refusal::InvalidRpc("the body must be one object"));
    }
    let envelope = Envelope::read(&root)?;
    if envelope.jsonrpc.as_ref().and_then(|v| v.node.as_str()) != Some("2.0") {
        return Err(Refusal::InvalidRpc("`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        return Err(Refusal::InvalidRpc(if envelope.answers {
            "responses are not accepted"
        } else {
            "`method` is missing"
        }));
    };
    let Some(method) = method.node.as_str() else { return Err(Refusal::InvalidRpc("`method` must be a string")) };
    if envelope.answers {
        return Err(Refusal::InvalidRpc("a request has no `result` and no `error`"));
    }
    let id = match envelope.id {
        None => None,
        Some(id) => Some(check_id(&id)?),
    };
    *read_id = id.map(<[u8]>::to_vec);
    let params = check_params(envelope.params)?;
    let meta = match params.as_ref().and_then(|p| p.get("_meta")) {
        Some(meta) if meta.node.kind() != Kind::Object => {
            return Err(Refusal::InvalidParams("`_meta` must be an object"));
        }
        meta => meta,
    };
    let (era, revision) = era(headers, method, meta.as_ref())?;
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params, meta, era, revision }),
        None => Message::Notification { method, era },
    })
}

#[derive(Default)]
struct Envelope<'d> {
    jsonrpc: Option<Spanned<'d>>,
    id: Option<Spanned<'d>>,
    method: Option<Spanned<'d>>,
    params: Option<Spanned<'d>>,
    answers: bool,
}

impl<'d> Envelope<'d> {
    fn read(root: &Spanned<'d>) -> Result<Self, Refusal> {
        let mut envelope = Self::default();
        for member in root.members() {
            match member.name {
                "jsonrpc" => envelope.jsonrpc = Some(member.value),
                "id" => envelope.id = Some(member.value),
                "method" => envelope.method = Some(member.value),
                "params" => envelope.params = Some(member.value),
                "result" | "error" => envelope.answers = true,
                other if resembles(other, &ENVELOPE) => {
                    return Err(Refusal::InvalidRpc("a member's name resembles one of the envelope"));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn check_id<'d>(id: &Spanned<'d>) -> Result<&'d [u8], Refusal> {
    let written = id.raw();
    match id.node.kind() {
        Kind::String => Ok(written),
        Kind::Number if !written.iter().any(|c| matches!(c, b'.' | b'e' | b'E')) => Ok(written),
        _ => Err(Refusal::InvalidRpc("`id` must be a string or an integer")),
    }
}

fn check_params(params: Option<Spanned<'_>>) -> Result<Option<Spanned<'_>>, Refusal> {
    let Some(params) = params else { return Ok(None) };
    if params.node.kind() != Kind::Object {
        return Err(Refusal::InvalidParams("`params` must be an object"));
    }
    for (name, _) in params.node.members() {
        if !PARAMS.contains(&name) && resembles(name, &PARAMS) {
            return Err(Refusal::InvalidRpc("a member's name resembles one of `params`"));
        }
    }
    Ok(Some(params))
}

/// Whether a lenient reader could take `name` for one of `known`.
fn resembles(name: &str, known: &[&str]) -> bool {
    name.len() <= 64 && known.iter().any(|known| folded(name).eq(known.chars().map(|c| c.to_ascii_lowercase())))
}

fn folded(name: &str) -> impl Iterator<Item = char> + '_ {
    name.chars().filter(|c| *c != '\0').map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    })
}

/// Which era's rules apply, decided for each request (`mcp.md` finding 3).
fn era(headers: &HeaderMap, method: &str, meta: Option<&Spanned<'_>>) -> Result<(Era, Revision), Refusal> {
    let mut lines = headers.get_all(HEADER_PROTOCOL_VERSION).iter();
    let header = lines.next();
    if lines.next().is_some() {
        return Err(Refusal::HeaderMismatch("MCP-Protocol-Version".to_owned()));
    }
    if meta.is_some_and(|meta| meta.node.get(META_PROTOCOL_VERSION).is_some()) {
        return Ok((Era::Modern, Revision::MODERN));
    }
    if method == "initialize" {
        return Ok((Era::Legacy, Revision::LATEST_LEGACY));
    }
    let Some(header) = header else { return Ok((Era::Legacy, Revision::V2025_03_26)) };
    let Ok(text) = header.to_str() else {
        return Err(Refusal::HeaderMismatch("MCP-Protocol-Version".to_owned()));
    };
    Ok(match Revision::parse(text.trim()) {
        Some(revision) => (revision.era(), revision),
        // Its messages for tools are those of 2025-03-26 (`mcp.md` A.3); only its transport is not served.
        None if text.trim() == "2024-11-05" => (Era::Legacy, Revision::V2025_03_26),
        None => (Era::Modern, Revision::MODERN),
    })
}
