//! Detector `keywords`: the policy's own words, without regard to case, wherever they stand.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::work::{Finding, Overrun, Work};

/// The most words of one rule, and the most bytes of all its words.
const WORDS_MAX: usize = 10_000;
const WORDS_BYTES_MAX: usize = 256 * 1024;

/// Compiled words.
#[derive(Clone, Debug)]
pub(super) struct Keywords {
    automaton: Arc<AhoCorasick>,
    /// Whether a word has letters beyond ASCII, whose case the automaton doesn't know.
    is_ascii: bool,
}

impl Keywords {
    /// Compiles the words of a rule.
    ///
    /// # Errors
    /// In words, when there are none, one is empty, or they are too many.
    pub(super) fn compile(words: &[String]) -> Result<Self, String> {
        if words.is_empty() {
            return Err("`words` must name at least one word".to_owned());
        }
        if words.iter().any(|word| word.trim().is_empty() || word.contains('\0')) {
            return Err("`words` has an empty word, or one with a zero byte".to_owned());
        }
        if words.len() > WORDS_MAX || words.iter().map(String::len).sum::<usize>() > WORDS_BYTES_MAX {
            return Err(format!("`words` has more than {WORDS_MAX} words or {WORDS_BYTES_MAX} bytes"));
        }
        let lower: Vec<String> = words.iter().map(|word| lowered(word)).collect();
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .kind((words.len() <= 500).then_some(AhoCorasickKind::DFA))
            .build(&lower)
            .map_err(|error| format!("`words` can't be compiled: {error}"))?;
        Ok(Self { automaton: Arc::new(automaton), is_ascii: lower.iter().all(|word| word.is_ascii()) })
    }

    /// Finds the words.
    pub(super) fn scan(&self, text: &str, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        work.spend(text.len())?;
        if self.is_ascii || text.is_ascii() {
            return self.find(text, |range| range, (work, found));
        }
        work.spend(text.len())?;
        let (lower, map) = lowered_with_map(text);
        let back = |at: usize| map.get(at).copied().unwrap_or(text.len());
        self.find(&lower, |range| back(range.start)..back(range.end), (work, found))
    }

    fn find(
        &self,
        text: &str,
        back: impl Fn(std::ops::Range<usize>) -> std::ops::Range<usize>,
        (work, found): (&mut Work, &mut Vec<Finding>),
    ) -> Result<(), Overrun> {
        for hit in self.automaton.find_iter(text) {
            work.spend(16)?;
            found.push(Finding { range: back(hit.range()), kind: "keywords" });
        }
        Ok(())
    }
}

fn lowered(word: &str) -> String {
    use unicode_normalization::UnicodeNormalization as _;
    word.nfkc().flat_map(char::to_lowercase).collect()
}

/// The text in lower case and, for each of its bytes and its end, the offset of the character that it came from.
fn lowered_with_map(text: &str) -> (String, Vec<usize>) {
    let mut lower = String::with_capacity(text.len());
    let mut map = Vec::with_capacity(text.len() + 1);
    for (at, character) in text.char_indices() {
        lower.extend(character.to_lowercase());
        map.resize(lower.len(), at);
    }
    map.push(text.len());
    (lower, map)
}
