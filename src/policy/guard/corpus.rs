//! What is looked at: every text of a part of a document, once in each of its readings, in one buffer.
//!
//! The room's own documentation says which texts these are and which not.
//!
//! **Invariant.** Texts stand apart by a zero byte, so that a detector sees the end of each and nothing is found across two.

use std::ops::Range;

use crate::model::jsonrpc::{LeafKind, Spanned};

use super::{checks::base64_bytes, normal, view, view::View};

/// How much of a blob is decoded, in bytes of its text: 1 MiB when decoded.
pub const BLOB_BYTES_MAX: usize = (1 << 20) / 3 * 4;
/// How far round a joint of two text blocks is looked, in bytes.
const JOINT_BYTES: usize = 512;
/// How many layers of JSON escapes are read within a text: JSON in a string, and JSON in a string of that.
const ESCAPE_LAYERS: usize = 2;
/// How far from a `blob` its `mimeType` may stand, in leaves.
const SIBLINGS: usize = 12;

/// The texts of a part of a document.
#[derive(Debug)]
pub(super) struct Corpus {
    /// All texts, with a zero byte after each.
    pub(super) text: String,
    /// Not everything could be read: a detector that finds nothing has not seen all.
    pub(super) is_cut: bool,
    /// Where the leaves stand: the first texts, in the order of the document.
    leaves: Vec<Stand>,
    /// All other texts. Their indices go on after those of the leaves.
    readings: Vec<Reading>,
}

/// Where a leaf stands. Plain numbers, so that making one costs next to nothing: most calls need none of them.
#[derive(Debug)]
struct Stand {
    /// Its place in [`Corpus::text`].
    range: Range<usize>,
    /// Its place in the document.
    span: Range<usize>,
    kind: LeafKind,
}

/// A text that is no leaf as it is.
#[derive(Debug)]
struct Reading {
    /// Its place in [`Corpus::text`].
    range: Range<usize>,
    origin: Origin,
}

/// Where a text comes from.
#[derive(Debug)]
enum Origin {
    /// Another reading of the text of that index.
    View(usize, Box<View>),
    /// The decoded bytes of the leaf of that index.
    Blob(usize),
    /// Pieces of leaves, joined: the leaf's index, and the piece's range in its text.
    Joined(Box<[(usize, Range<usize>)]>),
}

/// Where a match stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In a string value.
    Value,
    /// In a member name.
    Name,
    /// In a number.
    Number,
    /// In a base64 blob, decoded.
    Blob,
    /// Across text blocks.
    Joined,
}

/// A match, brought back to the leaves that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) place: Place,
    /// Leaves by index, with the range in each one's text; more than one only across text blocks.
    pub(super) parts: Vec<(usize, Range<usize>)>,
}

impl Corpus {
    /// Gathers the texts at and below `part`.
    pub(super) fn of(part: &Spanned<'_>) -> Self {
        let mut corpus = Self {
            text: String::with_capacity(part.span.len() + 64),
            is_cut: false,
            leaves: Vec::with_capacity(part.node.size()),
            readings: Vec::new(),
        };
        let mut blobs = Vec::new();
        let mut is_blob = false;
        for leaf in part.leaves() {
            if is_blob && leaf.kind == LeafKind::String {
                blobs.push(corpus.leaves.len());
            }
            is_blob = leaf.kind == LeafKind::Name && leaf.text == "blob";
            let range = corpus.push_text(leaf.text);
            corpus.leaves.push(Stand { range, span: leaf.span, kind: leaf.kind });
        }
        corpus.push_joints(part);
        for index in blobs {
            corpus.push_blob(index);
        }
        corpus.push_views();
        corpus
    }

    /// One text that stands alone.
    pub(super) fn of_text(text: &str) -> Self {
        let mut corpus = Self {
            text: String::with_capacity(text.len() + 1),
            is_cut: false,
            leaves: Vec::new(),
            readings: Vec::new(),
        };
        let range = corpus.push_text(text);
        corpus.leaves.push(Stand { span: range.clone(), range, kind: LeafKind::String });
        corpus.push_views();
        corpus
    }

    /// How many leaves there are.
    pub(super) const fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// The text of a leaf as its reader sees it.
    pub(super) fn leaf_text(&self, leaf: usize) -> &str {
        self.leaves.get(leaf).and_then(|leaf| self.text.get(leaf.range.clone())).unwrap_or_default()
    }

    /// What a leaf is, and its place in the document.
    pub(super) fn leaf(&self, leaf: usize) -> Option<(LeafKind, Range<usize>)> {
        self.leaves.get(leaf).map(|leaf| (leaf.kind, leaf.span.clone()))
    }

    /// Every text: where it starts, and whether it is joined from several.
    pub(super) fn texts(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let leaves = self.leaves.iter().map(|leaf| (&leaf.range, false));
        let readings = self.readings.iter().map(|reading| (&reading.range, self.is_joined(&reading.origin)));
        let text =
            |(range, is_joined): (&Range<usize>, bool)| Some((range.start, self.text.get(range.clone())?, is_joined));
        leaves.chain(readings).filter_map(text)
    }

    /// The reading of that index.
    fn reading(&self, index: usize) -> Option<&Reading> {
        self.readings.get(index.checked_sub(self.leaves.len())?)
    }

    fn is_joined(&self, origin: &Origin) -> bool {
        match origin {
            Origin::View(of, _) => self.reading(*of).is_some_and(|reading| self.is_joined(&reading.origin)),
            Origin::Joined(_) => true,
            Origin::Blob(_) => false,
        }
    }

    /// Every text but joints and views: what another engine is shown.
    pub(super) fn plain_texts(&self) -> impl Iterator<Item = &str> {
        let blobs = self.readings.iter().filter(|reading| matches!(reading.origin, Origin::Blob(_)));
        let ranges = self.leaves.iter().map(|leaf| &leaf.range).chain(blobs.map(|blob| &blob.range));
        ranges.filter_map(|range| self.text.get(range.clone()))
    }

    /// Where the match at `range` of [`Corpus::text`] stands; none if it is a repetition of what is found elsewhere.
    pub(super) fn locate(&self, range: &Range<usize>) -> Option<Located> {
        let before = self.leaves.partition_point(|leaf| leaf.range.start <= range.start)
            + self.readings.partition_point(|reading| reading.range.start <= range.start);
        let index = before.checked_sub(1)?;
        let text = self.range(index)?;
        let start = range.start - text.start;
        let end = range.end.min(text.end).saturating_sub(text.start);
        self.locate_in(index, start..end.max(start))
    }

    /// Where the text of that index stands in [`Corpus::text`].
    fn range(&self, index: usize) -> Option<Range<usize>> {
        let leaf = self.leaves.get(index).map(|leaf| &leaf.range);
        leaf.or_else(|| self.reading(index).map(|reading| &reading.range)).cloned()
    }

    fn locate_in(&self, index: usize, range: Range<usize>) -> Option<Located> {
        if let Some(leaf) = self.leaves.get(index) {
            let place = match leaf.kind {
                LeafKind::Name => Place::Name,
                LeafKind::String => Place::Value,
                LeafKind::Number => Place::Number,
            };
            return Some(Located { place, parts: vec![(index, range)] });
        }
        match &self.reading(index)?.origin {
            Origin::View(of, view) => self.locate_in(*of, view.origin(&range)),
            Origin::Blob(leaf) => {
                Some(Located { place: Place::Blob, parts: vec![(*leaf, 0..self.leaf_text(*leaf).len())] })
            }
            Origin::Joined(pieces) => locate_joined(pieces, &range),
        }
    }

    fn push(&mut self, text: &str, origin: Origin) {
        let range = self.push_text(text);
        self.readings.push(Reading { range, origin });
    }

    /// Appends a text and the zero byte after it; where it stands.
    fn push_text(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        let end = self.text.len();
        self.text.push('\0');
        start..end
    }

    /// Adds the other readings of what is there.
    fn push_views(&mut self) {
        let mut from = 0;
        for _ in 0..ESCAPE_LAYERS {
            let seen = self.range(from).map_or(self.text.len(), |range| range.start);
            if memchr::memchr(b'\\', self.text.as_bytes().get(seen..).unwrap_or_default()).is_none() {
                break;
            }
            from = self.push_each(from, view::unescaped);
        }
        if !self.text.is_ascii() {
            self.push_each(0, normal::normalised);
        }
    }

    /// Adds a reading of each text from that one on; the index of the first that was added.
    fn push_each(&mut self, from: usize, read: fn(&str) -> Option<View>) -> usize {
        let end = self.leaves.len() + self.readings.len();
        for index in from..end {
            let Some(text) = self.range(index).and_then(|range| self.text.get(range)) else { continue };
            if let Some(view) = read(text) {
                self.is_cut |= view.is_cut;
                let range = self.push_text(&view.text);
                self.readings.push(Reading { range, origin: Origin::View(index, Box::new(view)) });
            }
        }
        end
    }

    fn push_blob(&mut self, leaf: usize) {
        let text = self.leaf_text(leaf).as_bytes();
        let decoded = base64_bytes(text.get(..BLOB_BYTES_MAX).unwrap_or(text));
        if std::str::from_utf8(&decoded).is_ok() || !self.is_binary(leaf) {
            let text = String::from_utf8_lossy(&decoded).into_owned();
            self.push(&text, Origin::Blob(leaf));
        }
    }

    /// Whether a type that is no text is named beside the blob.
    fn is_binary(&self, leaf: usize) -> bool {
        let nearby = leaf.saturating_sub(SIBLINGS)..(leaf + SIBLINGS).min(self.leaves.len());
        let is_type = |at: &usize| {
            matches!(self.leaf(*at), Some((LeafKind::Name, _))) && self.leaf_text(*at).eq_ignore_ascii_case("mimeType")
        };
        nearby.filter(is_type).any(|at| {
            let kind = self.leaf_text(at + 1).to_ascii_lowercase();
            ["image/", "audio/", "video/", "font/"].iter().any(|start| kind.starts_with(start))
                || ["octet-stream", "pdf", "zip", "gzip", "wasm", "officedocument", "msword", "ms-excel", "x-tar"]
                    .iter()
                    .any(|part| kind.contains(part))
        })
    }

    /// Adds what stands round the joints of adjacent text blocks.
    fn push_joints(&mut self, part: &Spanned<'_>) {
        let Some(content) = part.node.get("content").filter(|content| content.len() > 1) else { return };
        // Leaves stand in the order of the document, so the blocks' texts are found by where they are.
        let Some(spanned) = part.get("content") else { return };
        let mut run: Vec<usize> = Vec::new();
        for (item, node) in spanned.items().zip(content.items()) {
            let is_text = node.get("type").and_then(|kind| kind.as_str()) == Some("text");
            let text = item.get("text").filter(|text| is_text && text.node.as_str().is_some());
            match text.and_then(|text| self.leaf_at(text.span.start)) {
                Some(leaf) => run.push(leaf),
                None => self.push_joined(&std::mem::take(&mut run)),
            }
        }
        self.push_joined(&run);
    }

    fn leaf_at(&self, start: usize) -> Option<usize> {
        self.leaves.binary_search_by_key(&start, |leaf| leaf.span.start).ok()
    }

    /// Joins the ends of neighbouring texts: all of a short one, the head and the tail of a long one.
    fn push_joined(&mut self, leaves: &[usize]) {
        if leaves.len() < 2 {
            return;
        }
        let mut joined = String::new();
        let mut pieces = Vec::new();
        for (at, &leaf) in leaves.iter().enumerate() {
            let text = self.leaf_text(leaf);
            let (is_first, is_last) = (at == 0, at + 1 == leaves.len());
            if text.len() <= 2 * JOINT_BYTES {
                pieces.push((leaf, 0..text.len()));
                joined.push_str(text);
                continue;
            }
            let head = ceil_boundary(text, JOINT_BYTES);
            let tail = ceil_boundary(text, text.len() - JOINT_BYTES);
            if !is_first {
                pieces.push((leaf, 0..head));
                joined.push_str(text.get(..head).unwrap_or_default());
                let whole = std::mem::take(&mut joined);
                self.push(&whole, Origin::Joined(std::mem::take(&mut pieces).into()));
            }
            if !is_last {
                let text = self.leaf_text(leaf);
                pieces.push((leaf, tail..text.len()));
                joined.push_str(text.get(tail..).unwrap_or_default());
            }
        }
        if pieces.len() > 1 {
            self.push(&joined, Origin::Joined(pieces.into()));
        }
    }
}

fn ceil_boundary(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

/// The pieces that `range` of their joined text stands in; none if that is only one.
fn locate_joined(pieces: &[(usize, Range<usize>)], range: &Range<usize>) -> Option<Located> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (leaf, piece) in pieces {
        let (from, to) = (range.start.max(start), range.end.min(start + piece.len()));
        if from < to {
            parts.push((*leaf, piece.start + from - start..piece.start + to - start));
        }
        start += piece.len();
    }
    (parts.len() > 1).then_some(Located { place: Place::Joined, parts })
}
