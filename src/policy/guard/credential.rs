//! The credentials that the gateway holds for a server are taken out of all that the server says (contract §4).
//!
//! A value is looked for as it is and in what a server may make of it: base64 (both alphabets, at any alignment within something longer),
//! hexadecimal, percent-encoding, JSON escapes, HTML entities, `+` for a space. A value such as `Bearer abc` counts with and
//! without its scheme, one of `Basic` also decoded. One pass of one search, another where a text has escapes.
//! Not recognised: a value that was cut, reversed, spread over several texts, compressed, or encrypted.

use std::ops::Range;

use crate::model::{
    id::encode_hex,
    jsonrpc::{Document, Spanned},
};

use super::{
    checks::base64_bytes,
    edit::{Cut, Edit, cut_text, edit_leaf, merge},
    needles::Needles,
    view::{self, View},
};

/// What a credential is replaced by.
const LABEL: &str = "[redacted:credential]";
/// Values shorter than this are matched as they are only, and only where no word goes on beside them; in bytes.
const LONG_BYTES_MIN: usize = 8;
/// Values shorter than this are matched only where they are the whole text; in bytes.
const SHORT_BYTES_MIN: usize = 4;

/// The credentials of one server, ready to be found. Holds secrets: has no `Debug` of its own making.
#[derive(Clone)]
pub struct CredentialMask {
    /// Every encoding of the long values, then the short values as they are.
    needles: Option<Needles>,
    /// How many of the needles are long.
    long_count: usize,
    /// Values that are matched only whole.
    whole: Vec<Vec<u8>>,
}

impl std::fmt::Debug for CredentialMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialMask(…)")
    }
}

impl CredentialMask {
    /// A mask for the values of credential headers.
    #[must_use]
    pub fn new(values: &[Vec<u8>]) -> Self {
        let mut known: Vec<Vec<u8>> = values.iter().flat_map(|value| readings(value)).collect();
        known.sort_unstable();
        known.dedup();
        let mut needles: Vec<Vec<u8>> =
            known.iter().filter(|value| value.len() >= LONG_BYTES_MIN).flat_map(|value| encodings(value)).collect();
        let long_count = needles.len();
        let is_short = |value: &&Vec<u8>| (SHORT_BYTES_MIN..LONG_BYTES_MIN).contains(&value.len());
        needles.extend(known.iter().filter(is_short).cloned());
        let whole = known.into_iter().filter(|value| !value.is_empty() && value.len() < SHORT_BYTES_MIN).collect();
        Self { needles: Needles::build(&needles).ok().filter(|_| !needles.is_empty()), long_count, whole }
    }

    /// Whether there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needles.is_none() && self.whole.is_empty()
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
        if self.whole.is_empty() && memchr::memchr2(b'\\', b'%', raw).is_none() && self.find(raw).is_empty() {
            return Vec::new();
        }
        let edit = |leaf: crate::model::jsonrpc::Leaf<'_>| {
            let cuts = self.cuts(leaf.text);
            (!cuts.is_empty()).then(|| edit_leaf(document.raw(), &leaf, &cuts))
        };
        part.leaves().filter_map(edit).collect()
    }

    fn cuts(&self, text: &str) -> Vec<Cut> {
        if self.whole.iter().any(|value| value == text.as_bytes()) {
            return vec![Cut { range: 0..text.len(), label: LABEL }];
        }
        if self.needles.is_none() {
            return Vec::new();
        }
        let mut ranges = self.find(text.as_bytes());
        let unescaped = view::unescaped(text);
        if let Some(view) = &unescaped {
            ranges.extend(self.find_in(view));
        }
        if let Some(view) = percent_decoded(text) {
            ranges.extend(self.find_in(&view));
        }
        if let Some(first) = unescaped
            && let Some(second) = percent_decoded(&first.text)
        {
            ranges.extend(self.find_in(&second).map(|range| first.origin(&range)));
        }
        merge(ranges.into_iter().map(|range| Cut { range, label: LABEL }).collect())
    }

    fn find_in<'v>(&self, view: &'v View) -> impl Iterator<Item = Range<usize>> + use<'v> {
        self.find(view.text.as_bytes()).into_iter().map(|range| view.origin(&range))
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

/// What a server may write for the value.
fn encodings(value: &[u8]) -> Vec<Vec<u8>> {
    let hex = encode_hex(value);
    let mut all = vec![value.to_vec(), hex.to_ascii_uppercase().into_bytes(), hex.into_bytes()];
    if value.contains(&b' ') {
        all.push(value.iter().map(|&byte| if byte == b' ' { b'+' } else { byte }).collect());
    }
    if value.iter().any(|byte| b"&<>\"'".contains(byte)) {
        all.push(html(value, "&quot;", "&#39;"));
        all.push(html(value, "&#34;", "&#x27;"));
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

fn html(value: &[u8], quote: &str, apostrophe: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 16);
    for &byte in value {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(quote.as_bytes()),
            b'\'' => out.extend_from_slice(apostrophe.as_bytes()),
            _ => out.push(byte),
        }
    }
    out
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

/// `text` with percent-encoded ASCII read, and the way back; none if it has none.
fn percent_decoded(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    let decode = |at: usize| u8::try_from(hex(at + 1)? << 4 | hex(at + 2)?).ok().filter(u8::is_ascii);
    View::replacing(text, b'%', |at| decode(at).map(|byte| (char::from(byte), 3)))
}
