//! Byte-exact editing of JSON that was already checked: what is not named stays as it was (contract §4 "Bytes").

use std::ops::Range;

use crate::model::jsonrpc::Spanned;

/// A replacement of a range of the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// The range within the document's raw bytes.
    pub span: Range<usize>,
    /// What stands there instead.
    pub with: Vec<u8>,
}

/// Changes to the members of one object.
#[derive(Debug, Default)]
pub struct ObjectEdit {
    removed: Vec<&'static str>,
    added: Vec<(&'static str, Vec<u8>)>,
}

impl ObjectEdit {
    /// Drops the member of that name, if there is one.
    pub fn remove(&mut self, name: &'static str) {
        self.removed.push(name);
    }

    /// Puts a member at the end, in the place of one that bears its name.
    pub fn set(&mut self, name: &'static str, value: Vec<u8>) {
        self.removed.push(name);
        self.added.push((name, value));
    }

    /// The splices that carry the changes out on `object`.
    #[must_use]
    pub fn splices(&self, object: &Spanned<'_>) -> Vec<Splice> {
        let mut splices = Vec::new();
        let mut kept = 0usize;
        let mut pending: Option<usize> = None;
        let mut previous_end: Option<usize> = None;
        for member in object.members() {
            let start = member.name_span.start;
            if let Some(from) = pending.take() {
                // Cut from the removed member's name to the next member's name.
                splices.push(Splice { span: from..start, with: Vec::new() });
            }
            if self.removed.contains(&member.name) {
                pending = Some(start);
            } else {
                kept += 1;
                previous_end = Some(member.value.span.end);
            }
        }
        let close = object.span.end.saturating_sub(1);
        if let Some(from) = pending {
            // The removed members at the end: cut from the last kept value, comma included, to the brace.
            let from = previous_end.unwrap_or(from);
            splices.retain(|splice| splice.span.start < from);
            splices.push(Splice { span: from..close, with: Vec::new() });
        }
        let mut tail = Vec::new();
        for (name, value) in &self.added {
            if kept > 0 {
                tail.push(b',');
            }
            kept += 1;
            tail.push(b'"');
            tail.extend_from_slice(name.as_bytes());
            tail.extend_from_slice(b"\":");
            tail.extend_from_slice(value);
        }
        if !tail.is_empty() {
            splices.push(Splice { span: close..close, with: tail });
        }
        splices
    }
}

/// Copies `within` of `raw` with the splices carried out; they must not overlap.
#[must_use]
pub fn apply(raw: &[u8], within: Range<usize>, mut splices: Vec<Splice>) -> Vec<u8> {
    splices.sort_by_key(|splice| (splice.span.start, splice.span.end));
    let mut out = Vec::with_capacity(within.len() + splices.iter().map(|s| s.with.len()).sum::<usize>());
    let mut at = within.start;
    for splice in &splices {
        if splice.span.start < at || splice.span.end > within.end {
            continue;
        }
        out.extend_from_slice(raw.get(at..splice.span.start).unwrap_or_default());
        out.extend_from_slice(&splice.with);
        at = splice.span.end;
    }
    out.extend_from_slice(raw.get(at..within.end).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::{ObjectEdit, apply};
    use crate::model::jsonrpc::Document;

    fn edited(text: &str, remove: &[&'static str], set: &[(&'static str, &str)]) -> String {
        let mut scratch = Vec::new();
        let document = Document::parse(text.as_bytes(), &mut scratch).unwrap();
        let root = document.spanned_root();
        let mut edit = ObjectEdit::default();
        for name in remove {
            edit.remove(name);
        }
        for (name, value) in set {
            edit.set(name, value.as_bytes().to_vec());
        }
        String::from_utf8(apply(text.as_bytes(), root.span.clone(), edit.splices(&root))).unwrap()
    }

    #[test]
    fn only_the_named_members_change() {
        for (text, remove, set, expected) in [
            ("{}", &["a"][..], &[][..], "{}"),
            ("{ }", &[], &[("x", "1")], "{ \"x\":1}"),
            (r#"{"a":1}"#, &["a"], &[], "{}"),
            (r#"{"a":1}"#, &["a"], &[("x", "2")], r#"{"x":2}"#),
            (r#"{"a":1, "b" : 2 ,"c":3}"#, &["b"], &[], r#"{"a":1, "c":3}"#),
            (r#"{"a":1, "b" : 2 ,"c":3 }"#, &["c"], &[], r#"{"a":1, "b" : 2}"#),
            (r#"{"a":1,"b":2,"c":3}"#, &["b", "c"], &[], r#"{"a":1}"#),
            (r#"{"a":1,"b":2,"c":3}"#, &["a", "b"], &[("x", "true")], r#"{"c":3,"x":true}"#),
            (r#"{"a":1,"b":2,"c":3}"#, &["a", "c"], &[("b", "9")], r#"{"b":9}"#),
            (r#"{"\u0061":1.50,"b":[1, 2]}"#, &["a"], &[], r#"{"b":[1, 2]}"#),
            (r#"{"a":1,"b":2,"c":3,"d":4}"#, &["a", "b", "c", "d"], &[], "{}"),
        ] {
            assert_eq!(edited(text, remove, set), expected, "{text}");
        }
    }
}
