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
    fn push_other(&mut self, text: &str, origin: Range<usize>) {
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

/// `text` without invisible characters and in NFKC; none if that is what it is already.
///
/// Look-alikes of other scripts (Cyrillic а for Latin a) stay what they are.
pub(super) fn normalised(text: &str) -> Option<View> {
    let mut normaliser = Normaliser { text, view: None, copied: 0 };
    let mut at = 0;
    while let Some(character) = next_foreign(text, &mut at) {
        let end = at + character.len_utf8();
        match Fate::of(character) {
            Fate::Stays => {}
            // What follows may combine with what this becomes.
            Fate::Becomes(written) if starts_settled(text, end) => normaliser.replace(at..end, written),
            fate => {
                // What stands before this may combine with it, unless it becomes something settled.
                let last = text.get(normaliser.copied..at).and_then(|plain| plain.chars().next_back());
                let before = last.filter(|_| fate == Fate::Depends).map_or(0, char::len_utf8);
                at = normaliser.segments(at - before);
                if normaliser.is_cut(at) {
                    return normaliser.view;
                }
                continue;
            }
        }
        at = end;
    }
    let Normaliser { view, copied, .. } = normaliser;
    let mut view = view?;
    view.push_same(text.get(copied..).unwrap_or_default(), copied..text.len());
    (view.text != text).then_some(view)
}

/// The first character at or after `at` that is not ASCII; `at` is moved to it.
fn next_foreign(text: &str, at: &mut usize) -> Option<char> {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let rest = text.as_bytes().get(*at..)?;
    let (words, tail) = rest.as_chunks();
    let high = |word: &[u8; 8]| u64::from_le_bytes(*word) & HIGH;
    let plain = match words.iter().map(high).enumerate().find(|(_, high)| *high != 0) {
        Some((word, high)) => word * 8 + high.trailing_zeros() as usize / 8,
        None => words.len() * 8 + tail.iter().position(|byte| !byte.is_ascii())?,
    };
    *at += plain;
    text.get(*at..)?.chars().next()
}

/// Whether what starts at `at` can't change, or be changed by, what stands before it.
fn starts_settled(text: &str, at: usize) -> bool {
    text.get(at..).and_then(|rest| rest.chars().next()).is_none_or(|next| Fate::of(next) != Fate::Depends)
}

/// The view of a text that is being normalised.
struct Normaliser<'t> {
    text: &'t str,
    /// None as long as nothing changed.
    view: Option<View>,
    /// How much of the text the view stands for.
    copied: usize,
}

impl Normaliser<'_> {
    /// The view, with all of the text up to `at` in it.
    fn view_to(&mut self, at: usize) -> &mut View {
        let view = self.view.get_or_insert_with(|| View::new(self.text.len()));
        if self.copied < at {
            view.push_same(self.text.get(self.copied..at).unwrap_or_default(), self.copied..at);
        }
        self.copied = at;
        view
    }

    /// Appends what `origin` becomes.
    fn replace(&mut self, origin: Range<usize>, written: &str) {
        let end = origin.end;
        self.view_to(origin.start).push_other(written, origin);
        self.copied = end;
    }

    /// Normalises from the character at `start`, whatever it is, on to the next settled one that nothing combines with; where that is.
    fn segments(&mut self, start: usize) -> usize {
        let text = self.text;
        let view = self.view_to(start);
        let mut segment = Segment::default();
        let mut end = start;
        for character in text.get(start..).unwrap_or_default().chars() {
            let next = end + character.len_utf8();
            if end > start && Fate::of(character) != Fate::Depends && starts_settled(text, next) {
                break;
            }
            if !is_invisible(character) {
                if starts_segment(character) {
                    segment.flush(text, view);
                }
                segment.push(end, character);
            }
            end = next;
            if view.text.len() > GROWTH_MAX * end + 1024 {
                break;
            }
        }
        segment.flush(text, view);
        self.copied = end;
        end
    }

    /// Whether the view grew too long; it is marked then.
    fn is_cut(&mut self, at: usize) -> bool {
        match &mut self.view {
            Some(view) if view.text.len() > GROWTH_MAX * at + 1024 => {
                view.is_cut = true;
                true
            }
            _ => false,
        }
    }
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
        let is_same = is_nfkc_quick(self.characters.chars()) == IsNormalized::Yes
            && text.get(origin.clone()) == Some(self.characters.as_str());
        if is_same {
            view.push_same(&self.characters, origin);
        } else {
            view.push_other(&self.characters.nfkc().collect::<String>(), origin);
        }
        self.characters.clear();
    }
}

/// What becomes of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is what NFKC makes of it, whatever stands before it.
    Stays,
    /// It becomes this, whatever stands before it.
    Becomes(&'static str),
    /// The tables have to be asked, or it is invisible.
    Depends,
}

impl Fate {
    /// Not of all characters, but of those that most texts consist of: ASCII, Latin, Greek and Cyrillic letters, dashes and
    /// quotes, the no-break space, kana, CJK, Hangul syllables, emoji.
    const fn of(character: char) -> Self {
        match character {
            '\0'..='\u{7f}'
            | '\u{a1}'..='\u{a7}'
            | '\u{a9}'
            | '\u{ab}'
            | '\u{ac}'
            | '\u{ae}'
            | '\u{b0}'
            | '\u{b1}'
            | '\u{b6}'
            | '\u{b7}'
            | '\u{bb}'
            | '\u{bf}'..='\u{131}'
            | '\u{134}'..='\u{13e}'
            | '\u{141}'..='\u{148}'
            | '\u{14a}'..='\u{17e}'
            | '\u{391}'..='\u{3a1}'
            | '\u{3a3}'..='\u{3ce}'
            | '\u{400}'..='\u{45f}'
            | '\u{5d0}'..='\u{5ea}'
            | '\u{621}'..='\u{64a}'
            | '\u{904}'..='\u{939}'
            | '\u{e01}'..='\u{e30}'
            | '\u{2012}'..='\u{2015}'
            | '\u{2018}'..='\u{2022}'
            | '\u{20ac}'
            | '\u{2190}'..='\u{21ff}'
            | '\u{2500}'..='\u{27bf}'
            | '\u{3001}'..='\u{3029}'
            | '\u{3041}'..='\u{3096}'
            | '\u{30a1}'..='\u{30fa}'
            | '\u{30fc}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{1f300}'..='\u{1f6ff}'
            | '\u{1f900}'..='\u{1f9ff}' => Self::Stays,
            '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => Self::Becomes(" "),
            '\u{2011}' => Self::Becomes("\u{2010}"),
            '\u{2026}' => Self::Becomes("..."),
            '\u{2122}' => Self::Becomes("TM"),
            '\u{ff0c}' => Self::Becomes(","),
            '\u{ff08}' => Self::Becomes("("),
            '\u{ff09}' => Self::Becomes(")"),
            '\u{ff1a}' => Self::Becomes(":"),
            '\u{b2}' => Self::Becomes("2"),
            '\u{b3}' => Self::Becomes("3"),
            '\u{b9}' => Self::Becomes("1"),
            _ => Self::Depends,
        }
    }
}

/// Whether nothing before this character can change how it is normalised.
fn starts_segment(character: char) -> bool {
    if Fate::of(character) != Fate::Depends {
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
        let pieces = "aZ9\u{200b}\u{ad}e\u{301}\u{ff21}\u{ff2b}\u{ac00}\u{1100}\u{1161}\u{11a8}天気\u{fdfa}\u{ff76}\u{ff9e}\u{e0041}\u{323}ß☺\u{fe0f}\u{0958}…\u{a0}½が\u{3099}か";
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
        for character in '\0'..=char::MAX {
            let alone = character.to_string();
            let written = match Fate::of(character) {
                Fate::Stays => alone.as_str(),
                Fate::Becomes(written) => written,
                Fate::Depends => continue,
            };
            assert_eq!(alone.nfkc().collect::<String>(), written, "{character:?}");
            let behind = format!("e{written}");
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
