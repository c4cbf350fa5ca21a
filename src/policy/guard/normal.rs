//! A text without invisible characters and in NFKC, with the way back to how it was written.
//!
//! Most text is normal already, and most of what is not has one character in place of another: both are told from a table,
//! without the library, which is asked only where characters may combine.

use std::ops::Range;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, char as unicode, is_nfkc_quick};

use super::{invisible::is_invisible, view::View};

/// How many times as long as its original a view may be (and 1 KiB besides): NFKC makes eleven times as much of some characters.
const GROWTH_MAX: usize = 4;

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
    /// Asked of each character that is not ASCII, so it looks into a table where most of them are.
    fn of(character: char) -> Self {
        let code = character as usize;
        let is_settled = match SETTLED.get(code / 64) {
            Some(word) => word >> (code % 64) & 1 == 1,
            None => is_settled(character),
        };
        if is_settled {
            return Self::Stays;
        }
        match character {
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

/// A bit for each of the first characters: whether it is settled.
static SETTLED: [u64; 0xc0] = settled_bits();

#[allow(clippy::indexing_slicing, reason = "run by the compiler, to which an index out of bounds is an error")]
const fn settled_bits() -> [u64; 0xc0] {
    let mut bits = [0; 0xc0];
    let mut code = 0;
    while code < 0xc0 * 64 {
        if let Some(character) = char::from_u32(code)
            && is_settled(character)
        {
            bits[code as usize / 64] |= 1 << (code % 64);
        }
        code += 1;
    }
    bits
}

/// Not all characters that NFKC leaves alone whatever stands before them, but those that most texts consist of: ASCII, Latin,
/// Greek and Cyrillic letters, dashes and quotes, kana, CJK, Hangul syllables, emoji.
const fn is_settled(character: char) -> bool {
    matches!(
        character,
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
            | '\u{1f900}'..='\u{1f9ff}'
    )
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
}
