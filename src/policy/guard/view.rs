//! Other readings of a text, each with the way back: normalised, and unescaped as JSON would.
//!
//! A [`View`] is a text and a map from its bytes to those of the text that it was made from, so that what is found in
//! the view can be redacted in the original. Knows no detector.

use std::ops::Range;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, char as unicode, is_nfkc_quick};

use super::invisible::is_invisible;

/// A reading of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The text as it reads.
    pub(super) text: String,
    /// It grew past [`GROWTH_MAX`] and was cut there: the rest is unseen.
    pub(super) is_cut: bool,
    pieces: Vec<Piece>,
}

/// How many times as long as its original a view may be (and 1 KiB besides): NFKC makes eleven times as much of some characters.
const GROWTH_MAX: usize = 4;

/// A stretch of the view and the stretch of the original that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    origin: Range<usize>,
    /// Byte for byte the same: offsets within can be mapped; else only the whole can.
    is_same: bool,
}

impl View {
    fn new(capacity: usize) -> Self {
        Self { text: String::with_capacity(capacity), is_cut: false, pieces: Vec::new() }
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
                    view.push_other(std::iter::once(character), start..start + len);
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
    fn push_same(&mut self, text: &str, origin: Range<usize>) {
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
    fn push_other(&mut self, text: impl Iterator<Item = char>, origin: Range<usize>) {
        let start = self.text.len();
        self.text.extend(text);
        if self.text.len() > start {
            self.pieces.push(Piece { start, origin, is_same: false });
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

/// `text` without invisible characters and in NFKC; none if that is what it is already.
///
/// Look-alikes of other scripts (Cyrillic а for Latin a) stay what they are.
pub(super) fn normalised(text: &str) -> Option<View> {
    if settled_len(text) == text.len() {
        return None;
    }
    let mut view = View::new(text.len());
    let mut segment = Segment::default();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if view.text.len() > GROWTH_MAX * at + 1024 {
            view.is_cut = true;
            return Some(view);
        }
        // What stands before a settled character can't change it, what follows can: all but the last of a run is copied.
        let run = rest.get(..settled_len(rest)).unwrap_or_default();
        if let Some((plain, _)) = run.char_indices().next_back().filter(|(last, _)| *last > 0) {
            segment.flush(text, &mut view);
            view.push_same(text.get(at..at + plain).unwrap_or_default(), at..at + plain);
            at += plain;
        }
        let Some(character) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
        if !is_invisible(character) {
            if starts_segment(character) {
                segment.flush(text, &mut view);
            }
            segment.push(at, character);
        }
        at += character.len_utf8();
    }
    segment.flush(text, &mut view);
    (view.text != text).then_some(view)
}

/// Characters that are normalised together: one that can't combine with what stands before it, and those that follow.
#[derive(Default)]
struct Segment {
    characters: String,
    start: usize,
    end: usize,
}

impl Segment {
    fn push(&mut self, at: usize, character: char) {
        if self.characters.is_empty() {
            self.start = at;
        }
        self.characters.push(character);
        self.end = at + character.len_utf8();
    }

    fn flush(&mut self, text: &str, view: &mut View) {
        if self.characters.is_empty() {
            return;
        }
        let origin = self.start..self.end;
        let is_same = self.characters.chars().nth(1).is_none() && self.characters.chars().all(is_settled)
            || (is_nfkc_quick(self.characters.chars()) == IsNormalized::Yes
                && text.get(origin.clone()) == Some(self.characters.as_str()));
        if is_same {
            view.push_same(&self.characters, origin);
        } else {
            view.push_other(self.characters.nfkc(), origin);
        }
        self.characters.clear();
    }
}

/// Bytes at the start of `text` that are settled characters.
fn settled_len(text: &str) -> usize {
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        at += rest.bytes().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(character) if is_settled(character) => at += character.len_utf8(),
            _ => break,
        }
    }
    at
}

/// Whether this character is what NFKC makes of it, whatever stands before it. Not all such characters, but those of which
/// most texts consist: ASCII, Latin, Greek and Cyrillic letters, dashes and quotes, kana, CJK, Hangul syllables.
const fn is_settled(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{7f}'
            | '\u{c0}'..='\u{131}'
            | '\u{391}'..='\u{3c9}'
            | '\u{400}'..='\u{45f}'
            | '\u{2012}'..='\u{2015}'
            | '\u{2018}'..='\u{2022}'
            | '\u{3041}'..='\u{3096}'
            | '\u{30a1}'..='\u{30fa}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
    )
}

/// Whether nothing before this character can change how it is normalised.
fn starts_segment(character: char) -> bool {
    if is_settled(character) {
        return true;
    }
    let mut first = None;
    unicode::decompose_compatible(character, |part| {
        first.get_or_insert(part);
    });
    let first = first.unwrap_or(character);
    unicode::canonical_combining_class(first) == 0 && is_nfkc_quick(std::iter::once(first)) == IsNormalized::Yes
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_normalised_view_is_nfkc_of_the_visible_characters() {
        let pieces = "aZ9\u{200b}\u{ad}e\u{301}\u{ff21}\u{ff2b}\u{ac00}\u{1100}\u{1161}\u{11a8}天気\u{fdfa}\u{ff76}\u{ff9e}\u{e0041}\u{323}ß☺\u{fe0f}\u{0958}";
        let characters: Vec<char> = pieces.chars().collect();
        proptest!(|(picks in proptest::collection::vec(0..characters.len(), 0..24))| {
            let text: String = picks.iter().map(|&pick| characters[pick]).collect();
            let expected: String = text.chars().filter(|c| !is_invisible(*c)).nfkc().collect();
            let got = normalised(&text).map_or_else(|| text.clone(), |view| view.text);
            prop_assert_eq!(got, expected);
        });
    }

    #[test]
    fn settled_characters_are_what_nfkc_makes_of_them() {
        for character in ('\0'..=char::MAX).filter(|character| is_settled(*character)) {
            let alone = character.to_string();
            assert_eq!(alone.nfkc().collect::<String>(), alone);
            let behind = format!("e{character}");
            assert!(is_nfkc_quick(behind.chars()) == IsNormalized::Yes && !is_invisible(character), "{character:?}");
        }
    }

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
