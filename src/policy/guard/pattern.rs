//! Detector `pattern`: the policy's own regular expressions, on an engine whose time is linear in the text.
//!
//! Whether there is a match at all is one linear search. Only to redact are all matches wanted, and then an expression such as
//! `.*x|y` makes a search of the rest of the text for each; so these searches are counted, byte by byte, on a lazy automaton.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use regex_automata::{Anchored, Input, MatchKind, hybrid::dfa, nfa::thompson, util::syntax};

use super::work::{Finding, Overrun, Work};

/// The most expressions of one rule.
const PATTERNS_MAX: usize = 100;
/// The largest compiled expression, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Memory of the lazy automaton, in bytes.
const CACHE_BYTES_MAX: usize = 2 << 20;
/// Matches of an expression that the automaton can't run (Unicode word boundaries beside other letters), a text.
const UNCOUNTED_MATCHES_MAX: usize = 256;

/// Compiled expressions.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    patterns: Arc<[Pattern]>,
}

#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// Forwards and backwards; none if the expression has what they can't do.
    counted: Option<(dfa::DFA, dfa::DFA)>,
}

/// Whether the first match of a text is enough, or all are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The first.
    First,
    /// All, as for redaction.
    All,
}

impl Patterns {
    /// Compiles the expressions of a rule.
    ///
    /// # Errors
    /// In words: there are none, or one is malformed, too large, matches the empty text, or needs look-around or back-references.
    pub(super) fn compile(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            return Err(format!("`patterns` must name 1 to {PATTERNS_MAX} expressions"));
        }
        let compiled: Result<Vec<Pattern>, String> = patterns
            .iter()
            .map(|text| Pattern::compile(text).map_err(|error| format!("pattern `{text}`: {error}")))
            .collect();
        Ok(Self { patterns: compiled?.into() })
    }

    /// How many expressions there are.
    pub(super) fn count(&self) -> usize {
        self.patterns.len()
    }

    /// Finds matches in one text.
    pub(super) fn scan(
        &self,
        text: &str,
        want: Want,
        work: &mut Work,
        found: &mut Vec<Finding>,
    ) -> Result<(), Overrun> {
        for pattern in self.patterns.iter() {
            work.spend(text.len())?;
            let Some(first) = pattern.regex.find(text) else { continue };
            if want == Want::First {
                found.push(Finding { range: first.range(), kind: "pattern" });
            } else {
                pattern.find_all(text, first.start(), work, found)?;
            }
        }
        Ok(())
    }
}

impl Pattern {
    fn compile(text: &str) -> Result<Self, String> {
        let regex =
            RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX).build().map_err(
                |error| match error {
                    regex::Error::CompiledTooBig(limit) => format!("it is larger than {limit} bytes when compiled"),
                    other => last_line(&other.to_string()),
                },
            )?;
        let shortest = syntax::parse(text).ok().and_then(|parsed| parsed.properties().minimum_len());
        if shortest.is_none_or(|bytes| bytes == 0) {
            return Err("it can match the empty text, and so everything".to_owned());
        }
        let config = dfa::Config::new()
            .cache_capacity(CACHE_BYTES_MAX)
            .skip_cache_capacity_check(true)
            .unicode_word_boundary(true);
        let build = |is_reverse: bool| {
            // Backwards, the longest match starts where the leftmost one does.
            let kind = if is_reverse { MatchKind::All } else { MatchKind::LeftmostFirst };
            dfa::Builder::new()
                .configure(config.clone().match_kind(kind))
                .thompson(thompson::Config::new().reverse(is_reverse).nfa_size_limit(Some(8 * PATTERN_BYTES_MAX)))
                .syntax(syntax::Config::new())
                .build(text)
                .ok()
        };
        Ok(Self { regex, counted: build(false).zip(build(true)) })
    }

    fn find_all(&self, text: &str, first: usize, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        let before = found.len();
        if let Some((forward, reverse)) = &self.counted
            && find_all_counted((forward, reverse), (text, first), work, found)?.is_some()
        {
            return Ok(());
        }
        found.truncate(before);
        for (count, hit) in self.regex.find_iter(text).enumerate() {
            work.spend(if count < UNCOUNTED_MATCHES_MAX { hit.len() + 16 } else { text.len() })?;
            found.push(Finding { range: hit.range(), kind: "pattern" });
        }
        Ok(())
    }
}

/// The last line of a syntax error, which says what is wrong.
fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Every match from `from` on; none if the automaton gave up.
fn find_all_counted(
    (forward, reverse): (&dfa::DFA, &dfa::DFA),
    (text, from): (&str, usize),
    work: &mut Work,
    found: &mut Vec<Finding>,
) -> Result<Option<()>, Overrun> {
    let (mut ahead, mut back) = (forward.create_cache(), reverse.create_cache());
    let mut at = from;
    while at < text.len() {
        let Some(end) = end_of_match(forward, &mut ahead, (text.as_bytes(), at), work)? else { return Ok(None) };
        let Some(end) = end else { break };
        let input = Input::new(text).range(at..end).anchored(Anchored::Yes);
        let Ok(Some(start)) = reverse.try_search_rev(&mut back, &input) else { return Ok(None) };
        work.spend(end - start.offset() + 16)?;
        if end > start.offset() {
            found.push(Finding { range: start.offset()..end, kind: "pattern" });
        }
        at = end.max(at + 1);
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    Ok(Some(()))
}

/// The end of the leftmost match at or after `from`; the outer none if the automaton gave up.
fn end_of_match(
    forward: &dfa::DFA,
    cache: &mut dfa::Cache,
    (text, from): (&[u8], usize),
    work: &mut Work,
) -> Result<Option<Option<usize>>, Overrun> {
    let Ok(mut state) = forward.start_state_forward(cache, &Input::new(text).range(from..)) else { return Ok(None) };
    let mut end = None;
    for (at, &byte) in text.iter().enumerate().skip(from) {
        let Ok(next) = forward.next_state(cache, state, byte) else { return Ok(None) };
        state = next;
        if state.is_tagged() {
            if state.is_match() {
                end = Some(at);
            } else if state.is_dead() {
                work.spend(at - from + 1)?;
                return Ok(Some(end));
            } else if state.is_quit() {
                return Ok(None);
            }
        }
    }
    work.spend(text.len() - from)?;
    let Ok(last) = forward.next_eoi_state(cache, state) else { return Ok(None) };
    Ok(Some(if last.is_match() { Some(text.len()) } else { end }))
}
