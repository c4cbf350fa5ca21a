//! Detector `invisible_text`: characters that a person doesn't see and a model reads.
//!
//! Zero-width characters, bidirectional controls, tag characters, runs of variation selectors and of soft hyphens, fillers.
//! Left alone where writing needs them: joiners between letters that are not ASCII (emoji, Persian, the scripts of India),
//! direction marks in a text with right-to-left letters, one variation selector after a character that takes one, the
//! three flags that are written with tags, a byte-order mark at the start.

use std::ops::Range;

use super::work::{Finding, Overrun, Work};

/// Finds runs of invisible characters in one text.
pub(super) fn scan(text: &str, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
    work.spend(text.len())?;
    if text.is_ascii() {
        return Ok(());
    }
    let is_right_to_left = text.chars().any(is_right_to_left);
    let mut before = None;
    let mut rest = text.char_indices().peekable();
    while let Some((start, first)) = rest.next() {
        if !is_invisible(first) {
            before = Some(first);
            continue;
        }
        let mut end = start + first.len_utf8();
        while let Some((at, next)) = rest.next_if(|(_, next)| is_invisible(*next)) {
            end = at + next.len_utf8();
        }
        let run = Run { text, range: start..end, before, after: rest.peek().map(|(_, next)| *next), is_right_to_left };
        if !run.is_needed() {
            work.spend(16)?;
            found.push(Finding { range: start..end, kind: "invisible_text" });
        }
    }
    Ok(())
}

/// Invisible characters in a row, and what stands beside them.
struct Run<'t> {
    text: &'t str,
    range: Range<usize>,
    before: Option<char>,
    after: Option<char>,
    is_right_to_left: bool,
}

impl Run<'_> {
    /// Whether honest writing needs the run.
    fn is_needed(&self) -> bool {
        let run = self.text.get(self.range.clone()).unwrap_or_default();
        let mut characters = run.chars();
        let (Some(first), rest) = (characters.next(), characters.as_str()) else { return true };
        let foreign = |neighbour: Option<char>| neighbour.is_some_and(|character| !character.is_ascii());
        if self.before == Some('\u{1F3F4}') && FLAGS.contains(&run) {
            return true;
        }
        // An emoji may have a selector and then a joiner: the two are judged one after the other.
        if is_selector(first) && rest == "\u{200D}" {
            return foreign(self.before) && foreign(self.after);
        }
        if !rest.is_empty() {
            return false;
        }
        match first {
            '\u{200C}' | '\u{200D}' => foreign(self.before) && (foreign(self.after) || first == '\u{200C}'),
            '\u{200E}' | '\u{200F}' | '\u{061C}' => self.is_right_to_left,
            '\u{FEFF}' => self.range.start == 0,
            '\u{00AD}' => true,
            character if is_selector(character) => {
                foreign(self.before) || self.before.is_some_and(|key| key.is_ascii_digit() || matches!(key, '#' | '*'))
            }
            '\u{034F}' | '\u{180B}'..='\u{180F}' | '\u{17B4}' | '\u{17B5}' => {
                foreign(self.before) && foreign(self.after)
            }
            _ => false,
        }
    }
}

/// The tags of the flags of England, Scotland and Wales.
const FLAGS: [&str; 3] = [
    "\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
    "\u{E0067}\u{E0062}\u{E0073}\u{E0063}\u{E0074}\u{E007F}",
    "\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}",
];

const fn is_selector(character: char) -> bool {
    matches!(character, '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}')
}

const fn is_right_to_left(character: char) -> bool {
    matches!(character, '\u{0590}'..='\u{05FF}' | '\u{0620}'..='\u{08FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}')
}

/// Whether a reader sees nothing of this character. The same set is removed from the normalised view.
pub(super) const fn is_invisible(character: char) -> bool {
    if character < '\u{AD}' {
        return false;
    }
    matches!(
        character,
        '\u{00AD}'
            | '\u{034F}'
            | '\u{061C}'
            | '\u{115F}'
            | '\u{1160}'
            | '\u{17B4}'
            | '\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}
