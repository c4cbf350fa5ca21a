//! Stages `clean`, `output` and `screen`: what a server says of a call, checked, cleaned, screened and fitted to the caller.
//!
//! Order (contract §4, security 2.3): the credential we hold and, in `isError` results, credential-shaped text are removed; then
//! content and outputSchema; then the guardrails, and after a redaction the outputSchema again; last the caller's revision.

use super::{
    Admitted, Asked, Subject,
    arguments::against,
    fit,
    input::{Asking, Note, Screened},
    rewrite::{Splice, apply},
    seal,
};
use crate::{
    model::{
        jsonrpc::{Document, Kind, Node, Spanned},
        mcp::Era,
        records::GuardStage,
    },
    policy::{
        guard,
        snapshot::{Guards, KeyPolicy, Settings},
    },
    refusal::{Refusal, Side, Unavailable, cut},
};

/// The longest message of a server's that is passed on, in characters (contract §4 `upstream_rejected`).
pub const MESSAGE_CHARS_MAX: usize = 1024;

/// Everything that a verdict on an answer needs.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The call that was sent.
    pub call: &'a Admitted,
    /// What was asked.
    pub asked: &'a Asked,
    /// The key that asked.
    pub key: &'a KeyPolicy,
    /// The policy's settings.
    pub settings: &'a Settings,
    /// The id we sent.
    pub our_id: &'a str,
    /// Random bytes for sealing a state.
    pub nonce: [u8; 12],
    /// What the guardrails on the way out found.
    pub notes: Vec<Note>,
    /// Engines that are to be asked before the result is released.
    pub asking: Asking,
    /// Progress that was dropped, because an engine would have to be asked about it.
    pub progress_dropped: u64,
}

/// Judges a successful response; the released `result` object.
///
/// # Refuses
/// - [`Refusal::UpstreamUnavailable`]: an unknown `resultType`, or input for a capability that was not declared.
/// - [`Refusal::ResultInvalid`], [`Refusal::GuardrailBlocked`], [`Refusal::GuardrailUnavailable`].
pub fn release(exchange: &mut Exchange<'_>, document: &Document<'_>, result: &Spanned<'_>) -> Result<Vec<u8>, Refusal> {
    let cleaned = clean(exchange, document, result);
    match cleaned {
        None => judged(exchange, document, result),
        Some(bytes) => {
            let mut scratch = Vec::new();
            let document = Document::parse(&bytes, &mut scratch).map_err(|_| Refusal::Internal)?;
            judged(exchange, &document, &document.spanned_root())
        }
    }
}

/// Removes the credential that we hold, and credential-shaped text from an `isError` result.
fn clean(exchange: &Exchange<'_>, document: &Document<'_>, result: &Spanned<'_>) -> Option<Vec<u8>> {
    let mut edits = exchange.call.checked.mask().edits(document, result);
    if edits.is_empty() && !is_error(result) {
        return None;
    }
    let mut bytes = apply(document.raw(), result.span.clone(), edits.drain(..).map(Splice::from).collect());
    if is_error(result) {
        let mut scratch = Vec::new();
        let cleaned = Document::parse(&bytes, &mut scratch).ok().map(|document| {
            let root = document.spanned_root();
            let edits = guard::credential_edits(&document, &root);
            apply(document.raw(), root.span.clone(), edits.into_iter().map(Splice::from).collect())
        });
        bytes = cleaned.unwrap_or(bytes);
    }
    Some(bytes)
}

fn is_error(result: &Spanned<'_>) -> bool {
    result.node.get("isError").and_then(Node::as_bool) == Some(true)
}

fn judged(exchange: &mut Exchange<'_>, document: &Document<'_>, result: &Spanned<'_>) -> Result<Vec<u8>, Refusal> {
    let unavailable = |cause| Refusal::UpstreamUnavailable(cause);
    match result.node.get("resultType").map(|kind| kind.as_str()) {
        None | Some(Some("complete")) => {}
        Some(Some("input_required")) if exchange.call.checked.subject.is_multi_round() => {
            return input_required(exchange, document, result);
        }
        Some(_) => return Err(unavailable(Unavailable::NotMcp)),
    }
    valid(exchange, result)?;
    match screened(exchange, document, result)? {
        None => Ok(fitted(exchange, document, result)),
        Some(bytes) => {
            let mut scratch = Vec::new();
            let document = Document::parse(&bytes, &mut scratch).map_err(|_| Refusal::Internal)?;
            let result = document.spanned_root();
            valid(exchange, &result)?;
            Ok(fitted(exchange, &document, &result))
        }
    }
}

fn fitted(exchange: &Exchange<'_>, document: &Document<'_>, result: &Spanned<'_>) -> Vec<u8> {
    match &exchange.call.checked.subject {
        Subject::Tool(_) => fit::complete(exchange.asked, exchange.settings, document, result),
        Subject::Passed { method, .. } => fit::passed((exchange.asked, method), exchange.settings, document, result),
    }
}

/// What a result of its kind must have is there, and `structuredContent` matches the approved outputSchema.
fn valid(exchange: &Exchange<'_>, result: &Spanned<'_>) -> Result<(), Refusal> {
    let invalid = |rule: String| Err(Refusal::ResultInvalid(vec![rule]));
    let (member, kind) = match &exchange.call.checked.subject {
        Subject::Tool(_) => ("content", Kind::Array),
        Subject::Passed { method, .. } => method.answer,
    };
    match result.node.get(member).map(Node::kind) {
        Some(found) if found == kind => {}
        Some(_) => {
            return invalid(format!("/{member}: must be an {}", if kind == Kind::Array { "array" } else { "object" }));
        }
        None => return invalid(format!("/{member}: is missing")),
    }
    let schema = match &exchange.call.checked.subject {
        Subject::Tool(tool) => tool.schemas.as_ref().ok().and_then(|schemas| schemas.output.as_ref()),
        Subject::Passed { .. } => None,
    };
    let Some(schema) = schema.filter(|_| !is_error(result)) else { return Ok(()) };
    match result.get("structuredContent") {
        None => invalid("/structuredContent: is missing".to_owned()),
        Some(structured) => against(schema, &structured).map_err(|rules| {
            Refusal::ResultInvalid(rules.into_iter().map(|rule| format!("/structuredContent{rule}")).collect())
        }),
    }
}

/// Runs the output guardrails; the redacted result, if one redacts.
fn screened(
    exchange: &mut Exchange<'_>,
    document: &Document<'_>,
    part: &Spanned<'_>,
) -> Result<Option<Vec<u8>>, Refusal> {
    let plan = rules(exchange).plan(&exchange.key.project);
    if plan.is_empty() {
        return Ok(None);
    }
    let mut found = Screened::default();
    let verdict = found.judge(plan, document, part, Side::Output);
    exchange.notes.append(&mut found.notes);
    exchange.asking.extend(found.asking.rules.into_iter(), found.asking.texts);
    verdict.map(|edits| edits.map(|edits| apply(document.raw(), part.span.clone(), edits)))
}

/// A multi-round-trip answer: only for what the caller declared, screened like a result, its state sealed (contract §3).
fn input_required(
    exchange: &mut Exchange<'_>,
    document: &Document<'_>,
    result: &Spanned<'_>,
) -> Result<Vec<u8>, Refusal> {
    let refuse = |cause| Err(Refusal::UpstreamUnavailable(cause));
    let requests = result.get("inputRequests");
    let state = result.get("requestState");
    if exchange.asked.era != Some(Era::Modern) {
        return refuse(Unavailable::CapabilityNotDeclared);
    }
    if requests.is_none() && state.is_none() {
        return refuse(Unavailable::NotMcp);
    }
    if let Some(requests) = &requests {
        declared(exchange, requests)?;
    }
    if state.as_ref().is_some_and(|state| state.node.kind() != Kind::String) {
        return refuse(Unavailable::NotMcp);
    }
    match screened(exchange, document, result)? {
        None => seal_and_fit(exchange, document, result),
        Some(bytes) => {
            let mut scratch = Vec::new();
            let document = Document::parse(&bytes, &mut scratch).map_err(|_| Refusal::Internal)?;
            seal_and_fit(exchange, &document, &document.spanned_root())
        }
    }
}

fn seal_and_fit(exchange: &Exchange<'_>, document: &Document<'_>, result: &Spanned<'_>) -> Result<Vec<u8>, Refusal> {
    let checked = &exchange.call.checked;
    let sealed = match result.get("requestState") {
        None => None,
        Some(state) => {
            let (key_id, server) = (&exchange.key.id, &checked.server);
            let (user, subject) = (checked.user_name().map(|user| &**user), &checked.subject);
            let call = seal::Call { key_id, user, server, subject, arguments: &checked.arguments };
            Some(seal::seal(&exchange.settings.state_key, state.raw(), &call, exchange.nonce)?)
        }
    };
    Ok(fit::input_required(exchange.settings, document, result, sealed))
}

/// Each request's method needs a capability that the caller declared.
fn declared(exchange: &Exchange<'_>, requests: &Spanned<'_>) -> Result<(), Refusal> {
    let refuse = |cause| Err(Refusal::UpstreamUnavailable(cause));
    let mut scratch = Vec::new();
    let raw = exchange.call.checked.meta.capabilities.as_deref().unwrap_or(b"{}");
    let Ok(capabilities) = Document::parse(raw, &mut scratch) else { return Err(Refusal::Internal) };
    if requests.node.kind() != Kind::Object {
        return refuse(Unavailable::NotMcp);
    }
    for (_, request) in requests.node.members() {
        let needed = match request.get("method").and_then(Node::as_str) {
            Some("elicitation/create") => "elicitation",
            Some("sampling/createMessage") => "sampling",
            Some("roots/list") => "roots",
            Some(_) => return refuse(Unavailable::CapabilityNotDeclared),
            None => return refuse(Unavailable::NotMcp),
        };
        if capabilities.root().get(needed).is_none() {
            return refuse(Unavailable::CapabilityNotDeclared);
        }
    }
    Ok(())
}

/// The refusal of a server's JSON-RPC error: a tool result that the model reads, but on a multi-round-trip retry and for a
/// missing capability a JSON-RPC error, as the specification demands.
pub fn rejected(exchange: &mut Exchange<'_>, code: i32, message: &str, data: Option<&Spanned<'_>>) -> Refusal {
    let message = match clean_message(exchange, message) {
        Ok(message) => message,
        Err(refusal) => return refusal,
    };
    if exchange.asked.era == Some(Era::Modern) {
        if code == -32021
            && let Some(required) = data.and_then(|data| data.get("requiredCapabilities"))
            && required.node.kind() == Kind::Object
        {
            return match clean_part(exchange, required.raw()) {
                Ok(required) => Refusal::MissingCapability { required },
                Err(refusal) => refusal,
            };
        }
        if exchange.call.checked.meta.is_retry() {
            return Refusal::Relayed { code, message, uri: None };
        }
    }
    match &exchange.call.checked.subject {
        Subject::Tool(_) => Refusal::UpstreamRejected(message),
        Subject::Passed { name, .. } => passed_error(exchange.asked.era, (code, message), (name.as_deref(), data)),
    }
}

/// An error about a request that is passed through. What the server says of the caller's `params` is the caller's to read in
/// the protocol's own form: there is no such method, prompt or resource. All else is a refusal.
fn passed_error(
    era: Option<Era>,
    (code, message): (i32, String),
    (name, data): (Option<&str>, Option<&Spanned<'_>>),
) -> Refusal {
    /// "Resource not found" before 2026-07-28.
    const NOT_FOUND: i32 = -32002;
    let uri = data.and_then(|data| data.node.get("uri")).and_then(Node::as_str).filter(|uri| name == Some(*uri));
    match code {
        -32601 => Refusal::MethodNotFound,
        -32602 => Refusal::Relayed { code, message, uri: uri.map(str::to_owned) },
        NOT_FOUND if era == Some(Era::Modern) => {
            Refusal::Relayed { code: -32602, message, uri: name.map(str::to_owned) }
        }
        NOT_FOUND => Refusal::Relayed { code, message, uri: uri.map(str::to_owned) },
        _ => Refusal::UpstreamRejected(message),
    }
}

/// Cleans and screens a part of an error that is passed on as JSON.
fn clean_part(exchange: &mut Exchange<'_>, raw: &[u8]) -> Result<String, Refusal> {
    let fault = |_| Refusal::Internal;
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    let document = Document::parse(raw, &mut first).map_err(fault)?;
    let root = document.spanned_root();
    let masked = edited(&document, &root, exchange.call.checked.mask().edits(&document, &root));
    let document = Document::parse(&masked, &mut second).map_err(fault)?;
    let root = document.spanned_root();
    let cleaned = edited(&document, &root, guard::credential_edits(&document, &root));
    let document = Document::parse(&cleaned, &mut third).map_err(fault)?;
    let screened = screened(exchange, &document, &document.spanned_root())?;
    String::from_utf8(screened.unwrap_or_else(|| cleaned.clone())).map_err(|_| Refusal::Internal)
}

fn edited(document: &Document<'_>, part: &Spanned<'_>, edits: Vec<guard::Edit>) -> Vec<u8> {
    apply(document.raw(), part.span.clone(), edits.into_iter().map(Splice::from).collect())
}

/// Cleans a server's text, screens it like a result, and cuts it.
fn clean_message(exchange: &mut Exchange<'_>, message: &str) -> Result<String, Refusal> {
    let mask = exchange.call.checked.mask();
    let mut text = mask.mask_text(message).unwrap_or_else(|| message.to_owned());
    if let Some(cleaned) = guard::clean_credentials(&text) {
        text = cleaned;
    }
    let mut json = Vec::new();
    crate::model::jsonrpc::write_string(&mut json, &text);
    let mut scratch = Vec::new();
    let document = Document::parse(&json, &mut scratch).map_err(|_| Refusal::Internal)?;
    if let Some(redacted) = screened(exchange, &document, &document.spanned_root())? {
        let mut scratch = Vec::new();
        let document = Document::parse(&redacted, &mut scratch).map_err(|_| Refusal::Internal)?;
        text = document.root().as_str().unwrap_or("").to_owned();
    }
    let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Ok(cut(visible.trim(), MESSAGE_CHARS_MAX))
}

/// The rules on what comes back of this exchange.
fn rules<'e>(exchange: &Exchange<'e>) -> &'e Guards {
    let checked = &exchange.call.checked;
    match (&checked.subject, &checked.server.passing) {
        (Subject::Tool(tool), _) => &tool.output,
        (Subject::Passed { .. }, [_, output]) => output,
    }
}

/// A progress notification for the caller, after the same rules; none: dropped.
pub fn progress(exchange: &mut Exchange<'_>, document: &Document<'_>, params: &Spanned<'_>) -> Option<Vec<u8>> {
    let wanted = exchange.call.checked.meta.progress_token.as_deref()?;
    let token = params.get("progressToken")?;
    if token.raw() != wanted {
        return None;
    }
    if rules(exchange).plan(&exchange.key.project).needs_engine(GuardStage::Output) {
        exchange.progress_dropped += 1;
        return None;
    }
    let edits = exchange.call.checked.mask().edits(document, params);
    let bytes = apply(document.raw(), params.span.clone(), edits.into_iter().map(Splice::from).collect());
    let mut scratch = Vec::new();
    let cleaned = Document::parse(&bytes, &mut scratch).ok()?;
    let bytes = match screened(exchange, &cleaned, &cleaned.spanned_root()) {
        Ok(None) => bytes.clone(),
        Ok(Some(redacted)) => redacted,
        Err(_) => return None,
    };
    let bytes = fit::unmarked(bytes)?;
    let mut out = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":".to_vec();
    out.extend_from_slice(&bytes);
    out.push(b'}');
    Some(out)
}
