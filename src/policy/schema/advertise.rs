//! What `tools/list` says of a tool: the approved definition, fitted to the caller (contract §4 Compatibility, `mcp.md` A.3).
//!
//! All that need not change is copied byte for byte, so the order of members and the digits of numbers stay the author's.

use std::{borrow::Cow, ops::Range};

use super::keywords::{Below, below};
use crate::model::{
    jsonrpc::{Kind, Node, Spanned, write_string},
    mcp::Revision,
};

/// What `structuredContent` is in a refusal (contract §4).
const ERROR_ENVELOPE: &str = concat!(
    r#"{"type":"object","properties":{"error":{"type":"object","#,
    r#""properties":{"type":{"type":"string"},"code":{"type":"string"},"message":{"type":"string"}},"#,
    r#""required":["type","code","message"],"additionalProperties":false}},"required":["error"],"additionalProperties":false}"#
);

/// The JSON of `tool` to list: under `exposed_name`, without `_meta` and `execution`, its `outputSchema` open to our refusals, and
/// without what `revision` does not know.
///
/// `tool` is the approved definition as its server sent it. An `outputSchema` that cannot be opened faithfully is left out.
#[must_use]
pub fn advertise(tool: &Spanned<'_>, exposed_name: &str, revision: Revision) -> String {
    let mut out = Vec::with_capacity(tool.span.len() + ERROR_ENVELOPE.len() + 64);
    out.extend_from_slice(br#"{"name":"#);
    write_string(&mut out, exposed_name);
    for member in tool.members() {
        match member.name {
            "name" | "_meta" | "execution" => {}
            "title" | "outputSchema" if revision <= Revision::V2025_03_26 => {}
            "outputSchema" => {
                if let Some(schema) = opened(&member.value) {
                    out.extend_from_slice(br#","outputSchema":"#);
                    out.extend_from_slice(&schema);
                }
            }
            name => {
                out.push(b',');
                write_string(&mut out, name);
                out.push(b':');
                out.extend_from_slice(member.value.raw());
            }
        }
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

/// `{"type":"object","anyOf":[approved, error envelope]}`, or nothing where that would not say the same.
fn opened(approved: &Spanned<'_>) -> Option<Vec<u8>> {
    let (node, early) = (approved.node, is_early_draft(approved.node));
    let is_object = node.get("type").and_then(Node::as_str) == Some("object");
    // Before 2019-09 a `$ref` hides what stands beside it, the `type` too.
    if !is_object || (early && node.get("$ref").is_some()) {
        return None;
    }
    let mut edits = Vec::new();
    reroot(approved, early, &mut edits)?;
    let mut out = vec![b'{'];
    for member in approved.members().filter(|member| is_hoisted(member.name)) {
        write_string(&mut out, member.name);
        out.push(b':');
        copy(&mut out, &member.value, approved, &edits);
        out.push(b',');
    }
    out.extend_from_slice(br#""type":"object","anyOf":[{"#);
    for (index, member) in approved.members().filter(|member| !is_hoisted(member.name)).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&mut out, member.name);
        out.push(b':');
        copy(&mut out, &member.value, approved, &edits);
    }
    out.extend_from_slice(b"},");
    out.extend_from_slice(ERROR_ENVELOPE.as_bytes());
    out.extend_from_slice(b"]}");
    Some(out)
}

/// Members that stay at the root, so that readers and references find them where they were.
fn is_hoisted(name: &str) -> bool {
    matches!(name, "$schema" | "$defs" | "definitions" | "title") || name.starts_with("x-")
}

/// Whether the schema says that it is of draft-04, -06 or -07.
fn is_early_draft(schema: Node<'_>) -> bool {
    schema.get("$schema").and_then(Node::as_str).is_some_and(|uri| uri.contains("/draft-0"))
}

/// A reference that must be written anew: the place of its text, and the new text.
type Edit = (Range<usize>, String);

/// Collects the references below `schema` that must follow it to `#/anyOf/0`; nothing where a name would be lost on the way.
fn reroot(schema: &Spanned<'_>, early: bool, edits: &mut Vec<Edit>) -> Option<()> {
    if schema.node.kind() == Kind::Array {
        return schema.items().try_for_each(|item| reroot(&item, early, edits));
    }
    for member in schema.members() {
        let text = member.value.node.as_str();
        match (member.name, text) {
            ("$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef", Some(_))
            | ("$recursiveAnchor", None) => {
                return None;
            }
            ("id", Some(_)) if early => return None,
            ("$ref", Some(reference)) => {
                let moved = moved(reference)?;
                if moved != reference {
                    edits.push((member.value.span.clone(), moved.into_owned()));
                }
            }
            _ => match below(member.name) {
                Below::Data => {}
                Below::Named => member.value.members().try_for_each(|named| reroot(&named.value, early, edits))?,
                Below::Schema => reroot(&member.value, early, edits)?,
            },
        }
    }
    Some(())
}

/// Where a reference leads once the schema stands at `#/anyOf/0`; nothing if it is no pointer into the schema.
fn moved(reference: &str) -> Option<Cow<'_, str>> {
    let pointer = if reference.is_empty() { "" } else { reference.strip_prefix('#')? };
    let Some(path) = pointer.strip_prefix('/') else {
        return pointer.is_empty().then(|| Cow::Owned("#/anyOf/0".to_owned()));
    };
    let first = path.split('/').next().unwrap_or_default();
    let first = percent_encoding::percent_decode_str(first).decode_utf8_lossy().replace("~1", "/").replace("~0", "~");
    Some(if is_hoisted(&first) { Cow::Borrowed(reference) } else { Cow::Owned(format!("#/anyOf/0{pointer}")) })
}

/// Copies `value`, a part of `whole`, with the edits that fall into it.
fn copy(out: &mut Vec<u8>, value: &Spanned<'_>, whole: &Spanned<'_>, edits: &[Edit]) {
    let bytes = |range: Range<usize>| {
        whole.raw().get(range.start - whole.span.start..range.end - whole.span.start).unwrap_or_default()
    };
    let mut at = value.span.start;
    for (span, text) in edits.iter().filter(|(span, _)| value.span.contains(&span.start)) {
        out.extend_from_slice(bytes(at..span.start));
        write_string(out, text);
        at = span.end;
    }
    out.extend_from_slice(bytes(at..value.span.end));
}
