//! Bytes to tape: what is JSON at all, and whether a member is named twice.
//!
//! Knows nothing of what the document says. Buffers are kept for each thread, so a call that is served by a warm
//! thread allocates nothing here but its scratch.

use std::cell::RefCell;

use ahash::RandomState;
use simd_json::{Buffers, ErrorType, INPUT_PADDING, Node as Entry, Tape};
use thiserror::Error;

use super::{DEPTH_MAX, Node, Spanned, span::Source};

/// A parsed document: borrows the received bytes and the scratch that holds its unescaped strings.
#[derive(Debug)]
pub struct Document<'a> {
    raw: &'a [u8],
    tape: Tape<'a>,
    /// The address of the scratch, in which each string stands where it stood in `raw`.
    base: usize,
}

/// Why a document was not accepted. Its words never repeat the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonFault {
    /// Not JSON: `-32700`.
    #[error("not JSON: {what} at byte {position}")]
    NotJson {
        /// Offset of the fault in the received bytes, as near as the parser knows it.
        position: usize,
        /// What is wrong, in words.
        what: &'static str,
    },
    /// JSON, but an object names a member twice, compared after unescaping: `-32600`.
    #[error("an object has the same member twice, again at byte {position}")]
    Duplicate {
        /// Offset of the second name's opening quote in the received bytes.
        position: usize,
    },
}

impl<'a> Document<'a> {
    /// Parses `raw` as exactly one JSON text (contract §3, RFC 8259).
    ///
    /// `scratch` is overwritten; it holds the strings while the document lives and may be used again after it.
    ///
    /// # Errors
    /// - [`JsonFault::NotJson`]: not JSON, a byte-order mark, trailing bytes, invalid UTF-8, a lone surrogate, a number beyond
    ///   the range of a double, or deeper than [`DEPTH_MAX`].
    /// - [`JsonFault::Duplicate`]: JSON, with a duplicate member at some depth.
    pub fn parse(raw: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Self, JsonFault> {
        scratch.clear();
        scratch.reserve(raw.len() + INPUT_PADDING);
        scratch.extend_from_slice(raw);
        scratch.resize(raw.len() + INPUT_PADDING, b' ');
        let mut parser = PARSERS.try_with(RefCell::take).unwrap_or_default();
        let base = scratch.as_ptr().addr();
        let mut document = Self { raw, base, tape: parser.tapes.pop().unwrap_or_else(empty_tape) };
        let buffers = parser.buffers.get_or_insert_with(|| Buffers::with_max_depth(0, DEPTH_MAX));
        let outcome = simd_json::fill_tape_padded(scratch, raw.len(), buffers, &mut document.tape)
            .map_err(|error| not_json(raw, &error))
            .and_then(|()| document.refuse_duplicates(&mut parser.table));
        parser.retire(raw.len());
        let _ = PARSERS.try_with(|slot| slot.replace(parser));
        outcome.map(|()| document)
    }

    /// The bytes as they were received.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The whole document as a value.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node::new(&self.tape.0)
    }

    /// The whole document as a value with its place in [`Document::raw`].
    #[must_use]
    pub fn spanned_root(&self) -> Spanned<'_> {
        Spanned::root(self.root(), Source::new(self.raw, self.base))
    }

    fn refuse_duplicates(&self, table: &mut Vec<u32>) -> Result<(), JsonFault> {
        let second = first_duplicate(&self.tape.0, table).and_then(|index| self.tape.0.get(index));
        match second {
            Some(Entry::String(name)) => {
                Err(JsonFault::Duplicate { position: Source::new(self.raw, self.base).offset(name) })
            }
            Some(_) => Err(JsonFault::Duplicate { position: 0 }),
            None => Ok(()),
        }
    }
}

impl Drop for Document<'_> {
    fn drop(&mut self) {
        let tape = std::mem::replace(&mut self.tape, Tape(Vec::new()));
        if tape.0.capacity() <= TAPE_ENTRIES_KEPT {
            let _ = PARSERS.try_with(|slot| {
                if let Ok(mut parser) = slot.try_borrow_mut()
                    && parser.tapes.len() < TAPES_KEPT
                {
                    parser.tapes.push(tape.reset());
                }
            });
        }
    }
}

/// What a thread keeps from one parse to the next.
#[derive(Default)]
struct Parser {
    buffers: Option<Buffers>,
    tapes: Vec<Tape<'static>>,
    table: Vec<u32>,
}

impl Parser {
    /// Gives memory back after an unusually large document.
    fn retire(&mut self, input_bytes: usize) {
        if input_bytes > INPUT_BYTES_KEPT {
            self.buffers = None;
        }
        if self.table.capacity() > TABLE_SLOTS_KEPT {
            self.table = Vec::new();
        }
    }
}

thread_local! {
    static PARSERS: RefCell<Parser> = RefCell::default();
    static NAME_HASHER: RandomState = RandomState::new();
}

/// A document larger than this leaves no buffers behind, in bytes.
const INPUT_BYTES_KEPT: usize = 1 << 20;
/// A tape longer than this is given back, in entries of 24 bytes.
const TAPE_ENTRIES_KEPT: usize = 1 << 15;
/// Tapes that a thread keeps.
const TAPES_KEPT: usize = 8;
/// A table of names larger than this is given back, in slots of 4 bytes.
const TABLE_SLOTS_KEPT: usize = 1 << 16;
/// Up to so many members names are compared pair by pair.
const PAIRWISE_MAX: usize = 8;

fn empty_tape<'a>() -> Tape<'a> {
    Tape(Vec::new())
}

/// The tape index of the first name that its object has already.
fn first_duplicate(tape: &[Entry<'_>], table: &mut Vec<u32>) -> Option<usize> {
    for (index, entry) in tape.iter().enumerate() {
        let found = match entry {
            Entry::Object { len, .. } if *len < 2 => None,
            Entry::Object { len, .. } if *len <= PAIRWISE_MAX => duplicate_of_few(tape, index, *len),
            Entry::Object { len, .. } => NAME_HASHER
                .try_with(|hasher| duplicate_of_many(tape, index, *len, (table, hasher)))
                .unwrap_or(Some(index)),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn duplicate_of_few(tape: &[Entry<'_>], object: usize, len: usize) -> Option<usize> {
    let mut seen = [""; PAIRWISE_MAX];
    let mut names = Names { tape, at: object + 1, left: len };
    for count in 0..len {
        let (index, name) = names.next()?;
        let (before, rest) = seen.split_at_mut(count);
        if before.contains(&name) {
            return Some(index);
        }
        if let Some(slot) = rest.first_mut() {
            *slot = name;
        }
    }
    None
}

/// Open addressing over tape indices, with hashes that a sender cannot predict: linear in the number of members.
fn duplicate_of_many(
    tape: &[Entry<'_>],
    object: usize,
    len: usize,
    (table, hasher): (&mut Vec<u32>, &RandomState),
) -> Option<usize> {
    let slots = len.saturating_mul(2).next_power_of_two();
    table.clear();
    table.resize(slots, 0);
    for (index, name) in (Names { tape, at: object + 1, left: len }) {
        let mut slot = usize::try_from(hasher.hash_one(name) & (slots as u64 - 1)).unwrap_or(0);
        loop {
            let taken = table.get_mut(slot)?;
            if *taken == 0 {
                *taken = u32::try_from(index).unwrap_or(0);
                break;
            }
            let other = tape.get(*taken as usize);
            if matches!(other, Some(Entry::String(other)) if *other == name) {
                return Some(index);
            }
            slot = (slot + 1) & (slots - 1);
        }
    }
    None
}

/// The names of one object, with their tape indices.
struct Names<'t, 'a> {
    tape: &'t [Entry<'a>],
    at: usize,
    left: usize,
}

impl<'a> Iterator for Names<'_, 'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let index = self.at;
        let (Some(Entry::String(name)), Some(value)) = (self.tape.get(index), self.tape.get(index + 1)) else {
            return None;
        };
        self.at = index + 1 + entry_count(value);
        Some((index, name))
    }
}

/// How many tape entries a value takes.
pub(super) const fn entry_count(entry: &Entry<'_>) -> usize {
    match entry {
        Entry::Object { count, .. } | Entry::Array { count, .. } => *count + 1,
        Entry::String(_) | Entry::Static(_) => 1,
    }
}

#[cold]
fn not_json(raw: &[u8], error: &simd_json::Error) -> JsonFault {
    if raw.starts_with(b"\xef\xbb\xbf") {
        return JsonFault::NotJson { position: 0, what: "a byte-order mark" };
    }
    if let Err(error) = std::str::from_utf8(raw) {
        return JsonFault::NotJson { position: error.valid_up_to(), what: "invalid UTF-8" };
    }
    let what = match error.error() {
        _ if raw.iter().all(u8::is_ascii_whitespace) => "nothing",
        ErrorType::DepthLimitExceeded => "deeper than 128 levels",
        ErrorType::InvalidNumber | ErrorType::Overflow => "a number that is malformed or beyond the range of a double",
        ErrorType::InvalidUnicodeCodepoint | ErrorType::InvalidUnicodeEscape | ErrorType::InvalidUtf8 => {
            "a malformed \\u escape or a lone surrogate"
        }
        ErrorType::InvalidEscape => "an unknown escape",
        ErrorType::TrailingData => "bytes after the document",
        ErrorType::ExpectedObjectKey | ErrorType::ExpectedObjectContent | ErrorType::ExpectedObjectColon => {
            "a malformed object"
        }
        ErrorType::ExpectedArrayContent => "a malformed array",
        ErrorType::InputTooLarge => "more than 4 GiB",
        _ => "a syntax error",
    };
    JsonFault::NotJson { position: error.index().min(raw.len()), what }
}
