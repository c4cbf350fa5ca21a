//! Where a value stands in the received bytes.
//!
//! The text has been validated, so nothing here judges: it only finds ends. The parser unescapes a string in place,
//! in a copy of the received bytes, so a string's own address says where it stands; a member's value then ends before the
//! next member's name, and is not read at all. What has no name after it is stepped over by a [`Cursor`]. Nothing is computed
//! before it is asked for.

use std::ops::Range;

use memchr::memchr2;
use simd_json::{Node as Entry, StaticNode};

use super::{Node, document::entry_count};

/// A value and its place in the received bytes.
#[derive(Clone, Debug)]
pub struct Spanned<'d> {
    /// The value.
    pub node: Node<'d>,
    /// Its bytes within [`Document::raw`](super::Document::raw), without space around it.
    pub span: Range<usize>,
    source: Source<'d>,
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
    pub(super) fn root(node: Node<'d>, source: Source<'d>) -> Self {
        let start = source.cursor(0).after_space();
        let end = source.back_over(source.raw.len(), is_space);
        Self { node, span: start..end, source }
    }

    /// The value's bytes as they were received.
    #[must_use]
    pub fn raw(&self) -> &'d [u8] {
        self.source.raw.get(self.span.clone()).unwrap_or_default()
    }

    /// The value's text as it was received.
    #[must_use]
    pub fn text(&self) -> &'d str {
        std::str::from_utf8(self.raw()).unwrap_or_default()
    }

    /// The member of that exact name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Spanned<'d>> {
        let mut members = self.members();
        while let Some((Entry::String(other), _)) = members.rest.split_first() {
            if *other == name {
                return members.next().map(|member| member.value);
            }
            members.rest = members.rest.get(1..).and_then(|values| values.get(entry_count(values.first()?)..))?;
        }
        None
    }

    /// The members of an object in document order; nothing for anything else.
    #[must_use]
    pub fn members(&self) -> SpannedMembers<'d> {
        let rest = match self.node.entries().split_first() {
            Some((Entry::Object { .. }, rest)) => rest,
            _ => &[],
        };
        SpannedMembers { rest, source: self.source, end: self.span.end.saturating_sub(1) }
    }

    /// The items of an array; nothing for anything else.
    #[must_use]
    pub fn items(&self) -> SpannedItems<'d> {
        let rest = match self.node.entries().split_first() {
            Some((Entry::Array { .. }, rest)) => rest,
            _ => &[],
        };
        let (source, end) = (self.source, self.span.end.saturating_sub(1));
        SpannedItems { rest, cursor: source.cursor(self.span.start + 1), source, end }
    }

    /// Every name, string and number at or below this value, depth first, in document order.
    #[must_use]
    pub fn leaves(&self) -> Leaves<'d> {
        let (source, cursor) = (self.source, self.source.cursor(self.span.start));
        let is_plain = memchr::memchr(b'\\', self.raw()).is_none();
        Leaves { entries: self.node.entries().iter(), cursor, source, is_plain }
    }
}

/// See [`Spanned::members`].
#[derive(Clone, Debug)]
pub struct SpannedMembers<'d> {
    rest: &'d [Entry<'d>],
    source: Source<'d>,
    /// The object's closing brace.
    end: usize,
}

impl<'d> Iterator for SpannedMembers<'d> {
    type Item = SpannedMember<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let (Entry::String(name), values) = self.rest.split_first()? else { return None };
        let (value, rest) = values.split_at_checked(entry_count(values.first()?))?;
        self.rest = rest;
        let source = self.source;
        let mut cursor = source.cursor(source.offset(name));
        let name_span = cursor.string(name);
        cursor.seek();
        let end = match rest.first() {
            Some(Entry::String(next)) => source.back_over(source.offset(next), is_space_or_comma),
            _ => source.back_over(self.end, is_space),
        };
        let value = Spanned { node: Node::new(value), span: cursor.at..end, source };
        Some(SpannedMember { name, name_span, value })
    }
}

/// See [`Spanned::items`].
#[derive(Clone, Debug)]
pub struct SpannedItems<'d> {
    rest: &'d [Entry<'d>],
    cursor: Cursor<'d>,
    source: Source<'d>,
    /// The array's closing bracket.
    end: usize,
}

impl<'d> Iterator for SpannedItems<'d> {
    type Item = Spanned<'d>;

    fn next(&mut self) -> Option<Self::Item> {
        let (value, rest) = self.rest.split_at_checked(entry_count(self.rest.first()?))?;
        self.rest = rest;
        self.cursor.seek();
        let (source, start) = (self.source, self.cursor.at);
        if rest.is_empty() {
            self.cursor.at = source.back_over(self.end, is_space);
        } else if let Some(next) = source.start_of(rest) {
            self.cursor.at = source.back_over(next, is_space_or_comma);
        } else {
            self.cursor.value(value.first()?);
        }
        Some(Spanned { node: Node::new(value), span: start..self.cursor.at, source })
    }
}

/// See [`Spanned::leaves`].
#[derive(Clone, Debug)]
pub struct Leaves<'d> {
    entries: std::slice::Iter<'d, Entry<'d>>,
    cursor: Cursor<'d>,
    source: Source<'d>,
    /// Without any escape: each string is as long as it was written.
    is_plain: bool,
}

impl<'d> Iterator for Leaves<'d> {
    type Item = Leaf<'d>;

    // Not called: a leaf that is handed over in memory is read back before it is written, which costs more than finding it.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.entries.next()? {
                // The next string says itself where it stands, and the cursor passes over brackets on its way to a scalar.
                Entry::Object { .. } | Entry::Array { .. } | Entry::Static(StaticNode::Null | StaticNode::Bool(_)) => {}
                Entry::Static(_) => {
                    let span = self.cursor.number();
                    let text = self.cursor.raw.get(span.clone()).and_then(|raw| std::str::from_utf8(raw).ok());
                    return Some(Leaf { kind: LeafKind::Number, text: text.unwrap_or_default(), span });
                }
                Entry::String(text) => {
                    let start = self.source.offset(text);
                    self.cursor.at = start;
                    let span = if self.is_plain {
                        self.cursor.at = start + text.len() + 2;
                        start..self.cursor.at
                    } else {
                        self.cursor.string(text)
                    };
                    let next = self.cursor.raw.get(self.cursor.after_space());
                    let kind = if next == Some(&b':') { LeafKind::Name } else { LeafKind::String };
                    return Some(Leaf { kind, text, span });
                }
            }
        }
    }
}

/// The received bytes, and where the copy begins in which their strings were unescaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'d> {
    raw: &'d [u8],
    base: usize,
}

impl<'d> Source<'d> {
    /// `base` is the address of the copy's first byte.
    pub(super) const fn new(raw: &'d [u8], base: usize) -> Self {
        Self { raw, base }
    }

    /// Where the opening quote of an unescaped string stands.
    pub(super) fn offset(self, text: &str) -> usize {
        text.as_ptr().addr().wrapping_sub(self.base).wrapping_sub(1)
    }

    fn cursor(self, at: usize) -> Cursor<'d> {
        Cursor { raw: self.raw, at }
    }

    /// The end of what stands before `end`, without the bytes that `skip` names.
    fn back_over(self, end: usize, skip: impl Fn(u8) -> bool) -> usize {
        let before = self.raw.get(..end).unwrap_or_default();
        before.iter().rposition(|&byte| !skip(byte)).map_or(0, |last| last + 1)
    }

    /// Where the first of these values begins, if its first string tells.
    fn start_of(self, entries: &[Entry<'_>]) -> Option<usize> {
        let opened = entries.iter().position(|entry| !matches!(entry, Entry::Array { .. } | Entry::Object { .. }))?;
        let (above, first) = entries.split_at_checked(opened)?;
        let Some(Entry::String(text)) = first.first() else { return None };
        let mut start = self.offset(text);
        for entry in above {
            if matches!(entry, Entry::Object { len: 0, .. } | Entry::Array { len: 0, .. }) {
                return None;
            }
            start = self.back_over(start, is_space).checked_sub(1)?;
        }
        Some(start)
    }
}

/// A place in validated JSON text.
#[derive(Clone, Copy, Debug)]
struct Cursor<'d> {
    raw: &'d [u8],
    at: usize,
}

impl Cursor<'_> {
    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        while let Some(&byte) = self.raw.get(self.at)
            && skip(byte)
        {
            self.at += 1;
        }
    }

    /// The next byte that is no space.
    fn after_space(mut self) -> usize {
        self.skip_while(is_space);
        self.at
    }

    /// On to the next string, scalar or opening bracket.
    fn seek(&mut self) {
        self.skip_while(|byte| is_space_or_comma(byte) || matches!(byte, b':' | b']' | b'}'));
    }

    /// Over the string that starts here and reads `text`.
    fn string(&mut self, text: &str) -> Range<usize> {
        let start = self.at;
        let rest = self.raw.get(start + 1..).unwrap_or_default();
        if let Some((plain, after)) = rest.split_at_checked(text.len())
            && after.first() == Some(&b'"')
            && plain == text.as_bytes()
        {
            self.at = start + text.len() + 2;
            return start..self.at;
        }
        self.any_string()
    }

    /// Over the string that starts here.
    fn any_string(&mut self) -> Range<usize> {
        let start = self.at;
        self.at += 1;
        while let Some(found) = memchr2(b'"', b'\\', self.raw.get(self.at..).unwrap_or_default()) {
            self.at += found;
            if self.raw.get(self.at) == Some(&b'"') {
                self.at += 1;
                return start..self.at;
            }
            self.at += 2;
        }
        self.at = self.raw.len();
        start..self.at
    }

    /// On to the next number and over it; no string stands before it.
    fn number(&mut self) -> Range<usize> {
        self.skip_while(|byte| !matches!(byte, b'-' | b'0'..=b'9'));
        let start = self.at;
        self.skip_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E'));
        start..self.at
    }

    /// Over the number, `true`, `false` or `null` that starts here.
    fn scalar(&mut self) -> Range<usize> {
        let start = self.at;
        self.skip_while(|byte| !is_space_or_comma(byte) && !matches!(byte, b']' | b'}'));
        start..self.at
    }

    /// Over the whole value that starts here.
    fn value(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::String(text) => drop(self.string(text)),
            Entry::Object { .. } | Entry::Array { .. } => self.container(),
            Entry::Static(_) => drop(self.scalar()),
        }
    }

    fn container(&mut self) {
        let mut depth = 0usize;
        loop {
            self.skip_while(|byte| !matches!(byte, b'"' | b'[' | b']' | b'{' | b'}'));
            match self.raw.get(self.at) {
                None => return,
                Some(b'"') => {
                    self.any_string();
                    continue;
                }
                Some(b'[' | b'{') => depth += 1,
                Some(_) => depth = depth.saturating_sub(1),
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

const fn is_space_or_comma(byte: u8) -> bool {
    is_space(byte) || byte == b','
}
