//! Where a value stands in the received bytes: a cursor that walks the text in step with the tape.
//!
//! The text has been validated, so the cursor only finds ends and never judges. Nothing is computed before it is
//! asked for; a value that is stepped over costs one scan of its bytes.

use std::ops::Range;

use memchr::memchr2;
use simd_json::{Node as Entry, StaticNode};

use super::Node;

/// A value and its place in the received bytes.
#[derive(Clone, Debug)]
pub struct Spanned<'d> {
    /// The value.
    pub node: Node<'d>,
    /// Its bytes within [`Document::raw`](super::Document::raw), without space around it.
    pub span: Range<usize>,
    raw: &'d [u8],
}

/// A member of an object and its place.
#[derive(Clone, Debug)]
pub struct SpannedMember<'d> {
    /// The unescaped name.
    pub name: &'d str,
    /// The name's bytes, with its quotes.
    pub name_span: Range<usize>,
    /// The value.
    pub value: Spanned<'d>,
}

/// What kind of text a [`Leaf`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// The name of a member.
    Name,
    /// A string value.
    String,
    /// A number.
    Number,
}

/// A piece of text that a reader of the document may see: a name, a string or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf<'d> {
    /// Which of the three.
    pub kind: LeafKind,
    /// The unescaped text; a number as it was written.
    pub text: &'d str,
    /// Its bytes, with the quotes of a name or string.
    pub span: Range<usize>,
}

impl<'d> Spanned<'d> {
    pub(super) fn root(node: Node<'d>, raw: &'d [u8]) -> Self {
        let mut cursor = Cursor { raw, at: 0 };
        cursor.skip_space();
        let start = cursor.at;
        let end = raw.iter().rposition(|&byte| !is_space(byte)).map_or(start, |last| last + 1);
        Self { node, span: start..end, raw }
    }

    /// The value's bytes as they were received.
    #[must_use]
    pub fn raw(&self) -> &'d [u8] {
        self.raw.get(self.span.clone()).unwrap_or_default()
    }

    /// The value's text as it was received.
    #[must_use]
    pub fn text(&self) -> &'d str {
        std::str::from_utf8(self.raw()).unwrap_or_default()
    }

    /// The member of that exact name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Spanned<'d>> {
        self.members().find_map(|member| (member.name == name).then_some(member.value))
    }

    /// The members of an object in document order; nothing for anything else.
    #[must_use]
    pub fn members(&self) -> SpannedMembers<'d> {
        SpannedMembers { members: self.node.members(), cursor: self.inside() }
    }

    /// The items of an array; nothing for anything else.
    #[must_use]
    pub fn items(&self) -> SpannedItems<'d> {
        SpannedItems { items: self.node.items(), cursor: self.inside() }
    }

    /// Every name, string and number at or below this value, depth first, in document order.
    #[must_use]
    pub fn leaves(&self) -> Leaves<'d> {
        Leaves { entries: self.node.entries().iter(), cursor: Cursor { raw: self.raw, at: self.span.start } }
    }

    fn inside(&self) -> Cursor<'d> {
        Cursor { raw: self.raw, at: self.span.start + 1 }
    }
}

/// See [`Spanned::members`].
#[derive(Clone, Debug)]
pub struct SpannedMembers<'d> {
    members: super::Members<'d>,
    cursor: Cursor<'d>,
}

impl<'d> Iterator for SpannedMembers<'d> {
    type Item = SpannedMember<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, node) = self.members.next()?;
        self.cursor.seek();
        let name_span = self.cursor.string();
        self.cursor.seek();
        let span = self.cursor.value(node);
        Some(SpannedMember { name, name_span, value: Spanned { node, span, raw: self.cursor.raw } })
    }
}

/// See [`Spanned::items`].
#[derive(Clone, Debug)]
pub struct SpannedItems<'d> {
    items: super::Items<'d>,
    cursor: Cursor<'d>,
}

impl<'d> Iterator for SpannedItems<'d> {
    type Item = Spanned<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.items.next()?;
        self.cursor.seek();
        let span = self.cursor.value(node);
        Some(Spanned { node, span, raw: self.cursor.raw })
    }
}

/// See [`Spanned::leaves`].
#[derive(Clone, Debug)]
pub struct Leaves<'d> {
    entries: std::slice::Iter<'d, Entry<'d>>,
    cursor: Cursor<'d>,
}

impl<'d> Iterator for Leaves<'d> {
    type Item = Leaf<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next()?;
            self.cursor.seek();
            match entry {
                Entry::Object { .. } | Entry::Array { .. } => self.cursor.at += 1,
                Entry::Static(StaticNode::Null | StaticNode::Bool(_)) => {
                    self.cursor.scalar();
                }
                Entry::Static(_) => {
                    let span = self.cursor.scalar();
                    let text = self.cursor.raw.get(span.clone()).and_then(|raw| std::str::from_utf8(raw).ok());
                    return Some(Leaf { kind: LeafKind::Number, text: text.unwrap_or_default(), span });
                }
                Entry::String(text) => {
                    let span = self.cursor.string();
                    self.cursor.skip_space();
                    let kind = if self.cursor.peek() == Some(b':') { LeafKind::Name } else { LeafKind::String };
                    return Some(Leaf { kind, text, span });
                }
            }
        }
    }
}

/// A place in validated JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'d> {
    raw: &'d [u8],
    at: usize,
}

impl Cursor<'_> {
    /// The offset of the tape entry `index` in `raw`.
    pub(super) fn locate(raw: &[u8], entries: &[Entry<'_>], index: usize) -> usize {
        let mut cursor = Cursor { raw, at: 0 };
        for entry in entries.iter().take(index) {
            cursor.seek();
            match entry {
                Entry::Object { .. } | Entry::Array { .. } => cursor.at += 1,
                Entry::Static(_) => drop(cursor.scalar()),
                Entry::String(_) => drop(cursor.string()),
            }
        }
        cursor.seek();
        cursor.at
    }

    fn peek(&self) -> Option<u8> {
        self.raw.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.raw.get(self.at..).unwrap_or_default()
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        let rest = self.rest();
        let count = rest.iter().position(|&byte| !skip(byte)).unwrap_or(rest.len());
        self.at += count;
    }

    fn skip_space(&mut self) {
        self.skip_while(is_space);
    }

    /// On to the next string, scalar or opening bracket.
    fn seek(&mut self) {
        self.skip_while(|byte| is_space(byte) || matches!(byte, b',' | b':' | b']' | b'}'));
    }

    /// Over the string that starts here.
    fn string(&mut self) -> Range<usize> {
        let start = self.at;
        self.at += 1;
        while let Some(found) = memchr2(b'"', b'\\', self.rest()) {
            self.at += found;
            if self.peek() == Some(b'"') {
                self.at += 1;
                return start..self.at;
            }
            self.at += 2;
        }
        self.at = self.raw.len();
        start..self.at
    }

    /// Over the number, `true`, `false` or `null` that starts here.
    fn scalar(&mut self) -> Range<usize> {
        let start = self.at;
        self.skip_while(|byte| !is_space(byte) && !matches!(byte, b',' | b']' | b'}'));
        start..self.at
    }

    /// Over the whole value that starts here.
    fn value(&mut self, node: Node<'_>) -> Range<usize> {
        match node.entries().first() {
            Some(Entry::String(_)) => self.string(),
            Some(Entry::Object { .. } | Entry::Array { .. }) => self.container(),
            Some(Entry::Static(_)) | None => self.scalar(),
        }
    }

    fn container(&mut self) -> Range<usize> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            self.skip_while(|byte| !matches!(byte, b'"' | b'[' | b']' | b'{' | b'}'));
            match self.peek() {
                None => return start..self.at,
                Some(b'"') => {
                    self.string();
                    continue;
                }
                Some(b'[' | b'{') => depth += 1,
                Some(_) => depth = depth.saturating_sub(1),
            }
            self.at += 1;
            if depth == 0 {
                return start..self.at;
            }
        }
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
