//! The credentials that the gateway holds for a server are taken out of all that the server says (contract §4).
//!
//! A value is looked for as it is and in what a server may make of it: base64 (both alphabets, at any alignment within something longer),
//! hexadecimal, `+` for a space, and JSON escapes, percent-encoding and HTML entities, up to four of these over each other. A value
//! such as `Bearer abc` counts with and without its scheme, one of `Basic` also decoded. One pass of one search, and
//! one for each layer of escapes that a text has.
//! Not recognised: a value that was cut, reversed, spread over several texts, compressed, or encrypted.
//!
//! **Invariant.** A mask that cannot be made is an error: no server is spoken to without one.

use std::ops::Range;

use crate::model::{
    id::encode_hex,
    jsonrpc::{Document, Spanned},
};

use super::{
    checks::base64_bytes,
    edit::{Cut, Edit, cut_text, edit_leaf, merge},
    needles::Needles,
    view::{View, read_escape},
};

/// What a credential is replaced by.
const LABEL: &str = "[redacted:credential]";
/// Values shorter than this are matched as they are only, and only where no word goes on beside them; in bytes.
const LONG_BYTES_MIN: usize = 8;
/// Values shorter than this are matched only where they are the whole text; in bytes.
const SHORT_BYTES_MIN: usize = 4;
/// All values of one server together; in bytes. More than any head that a server takes.
pub const CREDENTIAL_BYTES_MAX: usize = 256 * 1024;
/// Layers of escapes that are read.
const LAYERS_MAX: usize = 4;
/// The longest HTML entity that is read, from `&` to `;`; in bytes.
const ENTITY_BYTES_MAX: usize = 10;

/// The credentials of one server, ready to be found. Holds secrets: has no `Debug` of its own making.
#[derive(Clone)]
pub struct CredentialMask {
    /// Every encoding of the long values, then the short values as they are.
    needles: Option<Needles>,
    /// How many of the needles are long.
    long_count: usize,
    /// Values that are matched only whole.
    whole: Vec<Vec<u8>>,
    /// Every text is taken for one.
    all: bool,
}

impl std::fmt::Debug for CredentialMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialMask(…)")
    }
}

/// The credentials of a server cannot be looked for, so that it must not be spoken to. Says nothing of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what the server says cannot be searched for a credential of so many bytes")]
pub struct MaskFault;

impl CredentialMask {
    /// A mask for the values of credential headers.
    ///
    /// # Errors
    /// [`MaskFault`]: they have more than [`CREDENTIAL_BYTES_MAX`] bytes, or the automaton cannot be built.
    pub fn new<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Result<Self, MaskFault> {
        let (mut known, mut len): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        for value in values {
            len += value.len();
            if len > CREDENTIAL_BYTES_MAX {
                return Err(MaskFault);
            }
            known.extend(readings(value));
        }
        known.sort_unstable();
        known.dedup();
        let mut needles: Vec<Vec<u8>> =
            known.iter().filter(|value| value.len() >= LONG_BYTES_MIN).flat_map(|value| encodings(value)).collect();
        let long_count = needles.len();
        let is_short = |value: &&Vec<u8>| (SHORT_BYTES_MIN..LONG_BYTES_MIN).contains(&value.len());
        needles.extend(known.iter().filter(is_short).cloned());
        let whole = known.into_iter().filter(|value| !value.is_empty() && value.len() < SHORT_BYTES_MIN).collect();
        let search = Needles::build(&needles).map_err(|_| MaskFault)?;
        Ok(Self { needles: (!needles.is_empty()).then_some(search), long_count, whole, all: false })
    }

    /// A mask that takes out every text: for where there is a credential that cannot be looked for.
    #[must_use]
    pub const fn of_everything() -> Self {
        Self { needles: None, long_count: 0, whole: Vec::new(), all: true }
    }

    /// Whether there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needles.is_none() && self.whole.is_empty() && !self.all
    }

    /// `text` with every credential replaced by `[redacted:credential]`; none if there is none in it.
    #[must_use]
    pub fn mask_text(&self, text: &str) -> Option<String> {
        let cuts = self.cuts(text);
        (!cuts.is_empty()).then(|| cut_text(text, &cuts))
    }

    /// The same for bytes that may be no UTF-8, such as an answer that is no MCP.
    #[must_use]
    pub fn mask_bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.mask_text(text).map(String::into_bytes);
        }
        self.mask_text(&String::from_utf8_lossy(bytes)).map(String::into_bytes)
    }

    /// The edits that take the credentials out of `part`, a value of `document`: out of strings, member names and numbers.
    #[must_use]
    pub fn edits(&self, document: &Document<'_>, part: &Spanned<'_>) -> Vec<Edit> {
        if self.is_empty() {
            return Vec::new();
        }
        // Without escapes each text of the part is a stretch of its bytes, so one pass tells that there is nothing.
        let raw = part.raw();
        if !self.all && self.whole.is_empty() && next_escape(raw).is_none() && self.find(raw).is_empty() {
            return Vec::new();
        }
        let edit = |leaf: crate::model::jsonrpc::Leaf<'_>| {
            let cuts = self.cuts(leaf.text);
            (!cuts.is_empty()).then(|| edit_leaf(document.raw(), &leaf, &cuts))
        };
        part.leaves().filter_map(edit).collect()
    }

    fn cuts(&self, text: &str) -> Vec<Cut> {
        if (self.all && !text.is_empty()) || self.whole.iter().any(|value| value == text.as_bytes()) {
            return vec![Cut { range: 0..text.len(), label: LABEL }];
        }
        if self.needles.is_none() {
            return Vec::new();
        }
        let mut ranges = self.find(text.as_bytes());
        let mut views: Vec<View> = Vec::new();
        while views.len() < LAYERS_MAX
            && let Some(view) = unwrapped(views.last().map_or(text, |view| &view.text))
        {
            let found = self.find(view.text.as_bytes());
            views.push(view);
            let back = |range| views.iter().rev().fold(range, |range, view: &View| view.origin(&range));
            ranges.extend(found.into_iter().map(back));
        }
        merge(ranges.into_iter().map(|range| Cut { range, label: LABEL }).collect())
    }

    fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let Some(needles) = &self.needles else { return Vec::new() };
        let is_word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphanumeric);
        let stands_alone = |range: &Range<usize>| !is_word(range.start.checked_sub(1)) && !is_word(Some(range.end));
        let mut ranges = Vec::new();
        needles.find(text, |hit| {
            if hit.pattern().as_usize() < self.long_count || stands_alone(&hit.range()) {
                ranges.push(hit.range());
            }
        });
        ranges
    }
}

/// The value, without its scheme, and decoded if it is of `Basic`.
fn readings(value: &[u8]) -> Vec<Vec<u8>> {
    let value = value.trim_ascii();
    let mut readings = vec![value.to_vec()];
    if let Some(space) = value.iter().position(|&byte| byte == b' ') {
        let (scheme, token) = value.split_at(space);
        let token = token.trim_ascii();
        if !token.is_empty() && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            readings.push(token.to_vec());
            if scheme.eq_ignore_ascii_case(b"basic") {
                let decoded = base64_bytes(token);
                readings.extend(
                    decoded.iter().position(|&byte| byte == b':').map(|at| decoded.split_at(at + 1).1.to_vec()),
                );
                readings.push(decoded);
            }
        }
    }
    readings.retain(|reading| !reading.is_empty());
    readings
}

/// What a server may write for the value, apart from escapes. A value that reads as if it had some is looked for in each of its
/// readings: where a text's escapes were read, so were the value's own.
fn encodings(value: &[u8]) -> Vec<Vec<u8>> {
    let hex = encode_hex(value);
    let mut all = vec![value.to_vec(), hex.to_ascii_uppercase().into_bytes(), hex.into_bytes()];
    if value.contains(&b' ') {
        all.push(value.iter().map(|&byte| if byte == b' ' { b'+' } else { byte }).collect());
    }
    let mut inner = String::from_utf8_lossy(value).into_owned();
    for _ in 0..LAYERS_MAX {
        let Some(view) = unwrapped(&inner) else { break };
        inner = view.text;
        all.push(inner.clone().into_bytes());
    }
    for before in 0..3 {
        let standard = base64(value, before, *b"+/");
        let url = base64(value, before, *b"-_");
        all.extend([standard, url]);
    }
    all.sort_unstable();
    all.dedup();
    all.retain(|needle| needle.len() >= LONG_BYTES_MIN);
    all
}

/// The base64 digits that depend on the value alone when so many bytes of something else (modulo 3) stand before it.
fn base64(value: &[u8], before: usize, last_digits: [u8; 2]) -> Vec<u8> {
    let bit = |at: usize| {
        let byte = (at / 8).checked_sub(before).and_then(|at| value.get(at)).copied().unwrap_or(0);
        (byte >> (7 - at % 8)) & 1
    };
    let digit = |at: usize| (0..6).fold(0u8, |digit, offset| digit << 1 | bit(at * 6 + offset));
    let first = (before * 8).div_ceil(6);
    let end = (before + value.len()) * 8 / 6;
    let letter = |digit: u8| match digit {
        0..26 => b'A' + digit,
        26..52 => b'a' + digit - 26,
        52..62 => b'0' + digit - 52,
        62 => last_digits[0],
        _ => last_digits[1],
    };
    (first..end).map(|at| letter(digit(at))).collect()
}

/// Where an escape may start.
fn next_escape(text: &[u8]) -> Option<usize> {
    memchr::memchr3(b'\\', b'%', b'&', text)
}

/// `text` with one layer of escapes read (JSON's, `\xHH`, percent-encoded ASCII, HTML entities), and the way back; none if it has none.
fn unwrapped(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    View::replacing(text, next_escape, |at| match bytes.get(at)? {
        b'%' => ascii_of_hex(bytes, at + 1).map(|character| (character, 3)),
        b'&' => entity(bytes, at),
        _ if bytes.get(at + 1) == Some(&b'x') => ascii_of_hex(bytes, at + 2).map(|character| (character, 4)),
        _ => read_escape(bytes, at),
    })
}

fn ascii_of_hex(text: &[u8], at: usize) -> Option<char> {
    let hex = |at: usize| text.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    u8::try_from(hex(at)? << 4 | hex(at + 1)?).ok().filter(u8::is_ascii).map(char::from)
}

/// The character that the HTML entity at `at` stands for, and the entity's length.
fn entity(text: &[u8], at: usize) -> Option<(char, usize)> {
    let window = text.get(at + 1..(at + ENTITY_BYTES_MAX).min(text.len()))?;
    let end = memchr::memchr(b';', window)?;
    let name = std::str::from_utf8(window.get(..end)?).ok()?;
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((character, end + 2))
}
