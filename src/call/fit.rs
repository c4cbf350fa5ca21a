//! A checked result in the caller's revision: the members that the gateway owns, and the constructs that an older one lacks
//! (contract §4 "Bytes", `mcp.md` A.3). All else is copied byte for byte.

use super::{
    Asked, hello,
    pass::Method,
    rewrite::{ObjectEdit, Splice, apply},
};
use crate::{
    model::{
        jsonrpc::{Document, Kind, Node, Spanned, write_string},
        mcp::{Era, META_REFUSAL, META_SERVER_INFO, Revision},
    },
    policy::snapshot::Settings,
};

/// Fits a complete result.
#[must_use]
pub(super) fn complete(asked: &Asked, settings: &Settings, document: &Document<'_>, result: &Spanned<'_>) -> Vec<u8> {
    let revision = asked.revision.unwrap_or(Revision::MODERN);
    let mut edit = ObjectEdit::default();
    let mut splices = Vec::new();
    if revision.era() == Era::Modern {
        if result.get("resultType").is_none() {
            edit.set("resultType", b"\"complete\"".to_vec());
        }
        own_meta(settings, result, &mut edit, &mut splices);
    } else {
        edit.remove("resultType");
        foreign_meta(result, &mut splices);
        let structured = result.get("structuredContent");
        let fits = structured.as_ref().is_none_or(|value| value.node.kind() == Kind::Object);
        if revision < Revision::V2025_06_18 || !fits {
            edit.remove("structuredContent");
            let content = result.get("content");
            if let (Some(structured), Some(content)) = (&structured, &content) {
                mirror(content, structured, &mut splices);
            }
        }
        if revision < Revision::V2025_06_18
            && let Some(content) = result.get("content")
        {
            links_to_text(&content, &mut splices);
        }
    }
    splices.extend(edit.splices(result));
    apply(document.raw(), result.span.clone(), splices)
}

/// Fits the result of a request that is passed through. Whether it may be cached for others is not the server's to say: the
/// endpoint is there only for keys that it is granted to.
#[must_use]
pub(super) fn passed(
    (asked, method): (&Asked, &Method),
    settings: &Settings,
    document: &Document<'_>,
    result: &Spanned<'_>,
) -> Vec<u8> {
    let revision = asked.revision.unwrap_or(Revision::MODERN);
    let mut edit = ObjectEdit::default();
    let mut splices = Vec::new();
    if revision.era() == Era::Modern {
        if result.get("resultType").is_none() {
            edit.set("resultType", b"\"complete\"".to_vec());
        }
        if method.cacheable {
            if result.node.get("ttlMs").and_then(Node::as_u64).is_none() {
                edit.set("ttlMs", b"0".to_vec());
            }
            edit.set("cacheScope", b"\"private\"".to_vec());
        }
        own_meta(settings, result, &mut edit, &mut splices);
    } else {
        for name in ["resultType", "ttlMs", "cacheScope"] {
            edit.remove(name);
        }
        foreign_meta(result, &mut splices);
        if revision < Revision::V2025_06_18
            && let Some(messages) = result.get("messages")
        {
            let contents = messages.items().filter_map(|message| message.get("content"));
            contents.for_each(|content| link_to_text(&content, &mut splices));
        }
    }
    splices.extend(edit.splices(result));
    apply(document.raw(), result.span.clone(), splices)
}

/// Fits an `input_required` result; modern callers only.
#[must_use]
pub(super) fn input_required(
    settings: &Settings,
    document: &Document<'_>,
    result: &Spanned<'_>,
    sealed: Option<Vec<u8>>,
) -> Vec<u8> {
    let mut edit = ObjectEdit::default();
    let mut splices = Vec::new();
    if let Some(sealed) = sealed {
        edit.set("requestState", sealed);
    }
    own_meta(settings, result, &mut edit, &mut splices);
    splices.extend(edit.splices(result));
    apply(document.raw(), result.span.clone(), splices)
}

/// Ours in `_meta`: the server info set, the refusal mark of a server removed.
fn own_meta(settings: &Settings, result: &Spanned<'_>, edit: &mut ObjectEdit, splices: &mut Vec<Splice>) {
    match result.get("_meta").filter(|meta| meta.node.kind() == Kind::Object) {
        Some(meta) => {
            let mut inner = ObjectEdit::default();
            inner.remove(META_REFUSAL);
            inner.set(META_SERVER_INFO, hello::server_info(settings));
            splices.extend(inner.splices(&meta));
        }
        None => {
            let mut out = b"{".to_vec();
            write_string(&mut out, META_SERVER_INFO);
            out.push(b':');
            out.extend_from_slice(&hello::server_info(settings));
            out.push(b'}');
            edit.set("_meta", out);
        }
    }
}

/// To a legacy caller: neither a server's info nor its refusal mark.
fn foreign_meta(result: &Spanned<'_>, splices: &mut Vec<Splice>) {
    let Some(meta) = result.get("_meta") else { return };
    let mut inner = ObjectEdit::default();
    inner.remove(META_REFUSAL);
    inner.remove(META_SERVER_INFO);
    splices.extend(inner.splices(&meta));
}

/// The params of a notification without the gateway's own mark; none: not JSON any more.
#[must_use]
pub(super) fn unmarked(params: Vec<u8>) -> Option<Vec<u8>> {
    let mut scratch = Vec::new();
    let document = Document::parse(&params, &mut scratch).ok()?;
    let root = document.spanned_root();
    let Some(meta) = root.get("_meta").filter(|meta| meta.node.get(META_REFUSAL).is_some()) else {
        return Some(params.clone());
    };
    let mut edit = ObjectEdit::default();
    edit.remove(META_REFUSAL);
    Some(apply(document.raw(), root.span.clone(), edit.splices(&meta)))
}

/// A text mirror of structured content that the revision cannot carry, unless the server already sent a text block.
fn mirror(content: &Spanned<'_>, structured: &Spanned<'_>, splices: &mut Vec<Splice>) {
    let has_text = content.node.items().any(|block| block.get("type").and_then(Node::as_str) == Some("text"));
    if has_text {
        return;
    }
    let mut block = Vec::new();
    if !content.node.is_empty() {
        block.push(b',');
    }
    block.extend_from_slice(b"{\"type\":\"text\",\"text\":");
    write_string(&mut block, structured.text());
    block.push(b'}');
    let close = content.span.end.saturating_sub(1);
    splices.push(Splice { span: close..close, with: block });
}

/// 2025-03-26 has no `resource_link` block: its address as text.
fn links_to_text(content: &Spanned<'_>, splices: &mut Vec<Splice>) {
    content.items().for_each(|block| link_to_text(&block, splices));
}

fn link_to_text(block: &Spanned<'_>, splices: &mut Vec<Splice>) {
    if block.node.get("type").and_then(Node::as_str) != Some("resource_link") {
        return;
    }
    let uri = block.node.get("uri").and_then(Node::as_str).unwrap_or("");
    let text = match block.node.get("name").and_then(Node::as_str) {
        Some(name) => format!("{name}: {uri}"),
        None => uri.to_owned(),
    };
    let mut with = b"{\"type\":\"text\",\"text\":".to_vec();
    write_string(&mut with, &text);
    with.push(b'}');
    splices.push(Splice { span: block.span.clone(), with });
}
