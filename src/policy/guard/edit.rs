//! Edits of JSON text: what changes is named by its bytes, all other bytes stay.

use std::ops::Range;

use crate::model::jsonrpc::{Leaf, LeafKind, write_string};

use super::view::read_escape;

/// A string (or number) of a document and what is put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bytes of the document, with the string's quotes.
    pub span: Range<usize>,
    /// A JSON string.
    pub replacement: Vec<u8>,
}

/// `raw[within]` with `edits` made; edits are in order, apart from each other, and lie within.
#[must_use]
pub fn apply_edits(raw: &[u8], within: Range<usize>, edits: &[Edit]) -> Vec<u8> {
    let growth: usize = edits.iter().map(|edit| edit.replacement.len()).sum();
    let mut out = Vec::with_capacity(within.len() + growth);
    let mut from = within.start;
    for edit in edits.iter().filter(|edit| edit.span.start >= within.start && edit.span.end <= within.end) {
        out.extend_from_slice(raw.get(from..edit.span.start).unwrap_or_default());
        out.extend_from_slice(&edit.replacement);
        from = edit.span.end;
    }
    out.extend_from_slice(raw.get(from..within.end).unwrap_or_default());
    out
}

/// A stretch of a text and the words that take its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) range: Range<usize>,
    pub(super) label: &'static str,
}

/// Orders cuts and merges those that overlap; the label of the one that starts first stays, of equals that of the first.
pub(super) fn merge(mut cuts: Vec<Cut>) -> Vec<Cut> {
    cuts.sort_by_key(|cut| cut.range.start);
    let mut merged: Vec<Cut> = Vec::with_capacity(cuts.len());
    for cut in cuts {
        match merged.last_mut() {
            Some(last) if cut.range.start < last.range.end => last.range.end = last.range.end.max(cut.range.end),
            _ => merged.push(cut),
        }
    }
    merged
}

/// `text` with `cuts` (merged) made.
pub(super) fn cut_text(text: &str, cuts: &[Cut]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for cut in cuts {
        out.push_str(text.get(from..cut.range.start).unwrap_or_default());
        out.push_str(cut.label);
        from = cut.range.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

/// The edit that makes `cuts` (merged, in bytes of the leaf's text) in `leaf`; escapes outside of them stay as they were
/// written. A number becomes a string.
pub(super) fn edit_leaf(raw: &[u8], leaf: &Leaf<'_>, cuts: &[Cut]) -> Edit {
    let replacement = match leaf.kind {
        LeafKind::Number => {
            let mut out = Vec::new();
            write_string(&mut out, &cut_text(leaf.text, cuts));
            out
        }
        LeafKind::Name | LeafKind::String => cut_string(raw.get(leaf.span.clone()).unwrap_or_default(), cuts),
    };
    Edit { span: leaf.span.clone(), replacement }
}

/// Cuts a JSON string, quotes and all, by ranges of its unescaped text.
fn cut_string(raw: &[u8], cuts: &[Cut]) -> Vec<u8> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    let mut out = Vec::with_capacity(raw.len() + cuts.len() * 32);
    out.push(b'"');
    let (mut at, mut text_at) = (0, 0);
    let mut cuts = cuts.iter().peekable();
    let mut is_open = false;
    while let Some(&byte) = inner.get(at) {
        let (raw_len, text_len) = match byte {
            b'\\' => read_escape(inner, at).map_or((1, 1), |(character, len)| (len, character.len_utf8())),
            _ => (1, 1),
        };
        while cuts.next_if(|cut| cut.range.end <= text_at).is_some() {
            is_open = false;
        }
        match cuts.peek() {
            Some(cut) if cut.range.start < text_at + text_len => {
                if !is_open {
                    out.extend_from_slice(cut.label.as_bytes());
                    is_open = true;
                }
            }
            _ => out.extend_from_slice(inner.get(at..at + raw_len).unwrap_or_default()),
        }
        at += raw_len;
        text_at += text_len;
    }
    out.push(b'"');
    out
}
