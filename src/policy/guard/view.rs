//! Other readings of a text, each with the way back: unescaped as JSON would, and normalised (`normal.rs`).
//!
//! A [`View`] is a text and a map from its bytes to those of the text that it was made from, so that what is found in
//! the view can be redacted in the original. Knows no detector.

use std::ops::Range;

/// A reading of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The text as it reads.
    pub(super) text: String,
    /// It grew past [`GROWTH_MAX`] and was cut there: the rest is unseen.
    pub(super) is_cut: bool,
    pieces: Vec<Piece>,
}

/// A stretch of the view and the stretch of the original that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    origin: Range<usize>,
    /// Byte for byte the same: offsets within can be mapped; else only the whole can.
    is_same: bool,
}

impl View {
    /// An empty one with room for so many bytes.
    pub(super) fn new(capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), is_cut: false, pieces: Vec::with_capacity(8 + capacity / 64) }
    }

    /// `text` with what starts where `next` finds an ASCII byte read by `read`: the character there and how many bytes it takes;
    /// none if nothing of the kind is there.
    pub(super) fn replacing(
        text: &str,
        next: impl Fn(&[u8]) -> Option<usize>,
        read: impl Fn(usize) -> Option<(char, usize)>,
    ) -> Option<Self> {
        let (mut from, mut at) = (0, 0);
        let mut view: Option<Self> = None;
        while let Some(found) = text.get(at..).and_then(|rest| next(rest.as_bytes())) {
            let start = at + found;
            at = match read(start) {
                Some((character, len)) => {
                    let view = view.get_or_insert_with(|| Self::new(text.len()));
                    view.push_same(text.get(from..start).unwrap_or_default(), from..start);
                    view.push_other(character.encode_utf8(&mut [0; 4]), start..start + len);
                    from = start + len;
                    from
                }
                None => start + 1,
            };
        }
        let mut view = view?;
        view.push_same(text.get(from..).unwrap_or_default(), from..text.len());
        Some(view)
    }

    /// Appends a stretch that reads as it is written.
    pub(super) fn push_same(&mut self, text: &str, origin: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(text);
        if let Some(last) = self.pieces.last_mut()
            && last.is_same
            && last.origin.end == origin.start
        {
            last.origin.end = origin.end;
            return;
        }
        self.pieces.push(Piece { start, origin, is_same: true });
    }

    /// Appends a stretch that reads otherwise.
    pub(super) fn push_other(&mut self, text: &str, origin: Range<usize>) {
        if !text.is_empty() {
            self.pieces.push(Piece { start: self.text.len(), origin, is_same: false });
            self.text.push_str(text);
        }
    }

    /// The range of the original that `range` of the view stands for, widened to whole characters.
    pub(super) fn origin(&self, range: &Range<usize>) -> Range<usize> {
        let piece = |at: usize| {
            self.pieces.partition_point(|piece| piece.start <= at).checked_sub(1).and_then(|at| self.pieces.get(at))
        };
        let start = piece(range.start).map_or(0, |piece| {
            if piece.is_same { piece.origin.start + (range.start - piece.start) } else { piece.origin.start }
        });
        let end = piece(range.end.saturating_sub(1)).map_or(start, |piece| {
            if piece.is_same { piece.origin.start + (range.end - piece.start) } else { piece.origin.end }
        });
        start..end.max(start)
    }
}

/// `text` with its escapes read as JSON reads them, once; none if it has none. So JSON within a string is read, whether it is
/// well-formed or not. A backslash that starts no escape stays.
pub(super) fn unescaped(text: &str) -> Option<View> {
    View::replacing(text, |rest| memchr::memchr(b'\\', rest), |at| read_escape(text.as_bytes(), at))
}

/// The character that the escape at `at` stands for, and the escape's length.
pub(super) fn read_escape(text: &[u8], at: usize) -> Option<(char, usize)> {
    let character = match text.get(at + 1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = read_hex(text, at + 2)?;
            if let Some(character) = char::from_u32(first) {
                return Some((character, 6));
            }
            let is_pair = text.get(at + 6) == Some(&b'\\') && text.get(at + 7) == Some(&b'u');
            let second = if is_pair { read_hex(text, at + 8)? } else { return None };
            let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
            let high = first.checked_sub(0xD800).filter(|high| *high < 0x400)?;
            return char::from_u32(0x1_0000 + (high << 10) + low).map(|character| (character, 12));
        }
        _ => return None,
    };
    Some((character, 2))
}

fn read_hex(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 4)?;
    digits.iter().try_fold(0u32, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::{super::normal::normalised, *};

    #[test]
    fn what_is_found_in_a_view_maps_back_to_whole_characters() {
        let text = "x \u{ff21}K\u{200b}IA\u{200b} y";
        let view = normalised(text).unwrap();
        let at = view.text.find("AKIA").unwrap();
        assert_eq!(&text[view.origin(&(at..at + 4))], "\u{ff21}K\u{200b}IA");
        let view = unescaped(r"x \u0041KI\u0041 y").unwrap();
        let at = view.text.find("AKIA").unwrap();
        assert_eq!(&r"x \u0041KI\u0041 y"[view.origin(&(at..at + 4))], r"\u0041KI\u0041");
    }

    #[test]
    fn escapes_are_read_once_and_odd_ones_stay() {
        for (text, expected) in [
            (r"a\/b", Some("a/b")),
            (r"\\u0041", Some(r"\u0041")),
            (r"C:\users\new", Some("C:\\users\new")),
            (r"\ud83d\ude80", Some("🚀")),
            (r"\ud83d", None),
            (r"\ud83d\u0041", Some("\\ud83dA")),
            (r"\u00g0", None),
            ("plain", None),
        ] {
            assert_eq!(unescaped(text).map(|view| view.text).as_deref(), expected, "{text}");
        }
    }
}
