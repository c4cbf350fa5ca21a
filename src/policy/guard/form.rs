//! An expression of a rule file as a dense ASCII automaton that is stepped by hand, anchored a fixed distance before a keyword.
//!
//! **Invariant.** A zero byte ends every match: texts that are joined with zero bytes are told apart.

use std::{collections::HashSet, ops::Range};

use regex_automata::{
    Anchored,
    dfa::{Automaton, StartKind, dense},
    nfa::thompson,
    util::{primitives::StateID, start, syntax},
};

use super::{
    rules::{Case, Written},
    work::{Overrun, Work},
};

/// The most bytes that one match may have, from where it starts. A longer secret is cut there.
pub(super) const MATCH_BYTES_MAX: usize = 16 * 1024;
/// The farthest that a keyword may stand from the start of its matches, in bytes.
const LEAD_MAX: usize = 40;
/// The largest automaton of one rule, in bytes.
const AUTOMATON_BYTES_MAX: usize = 2 << 20;

/// An expression, and the rules that have it: it is tried once for all of them.
#[derive(Debug)]
pub(super) struct Form {
    /// By their place in the file.
    pub(super) rules: Vec<usize>,
    automaton: dense::DFA<Vec<u32>>,
    /// How far before its keyword a match starts.
    pub(super) lead: usize,
    /// Every match has an [`Ahead::SIGN`]: where none follows, nothing need be tried.
    pub(super) needs_sign: bool,
    /// The expression again, for the range of the secret's group within a match.
    group: Option<(regex::bytes::Regex, usize)>,
}

impl Form {
    /// Compiles the form of a rule.
    ///
    /// # Errors
    /// In words: the expression can't be compiled, or can't be anchored at its keywords.
    pub(super) fn compile(written: &Written, rule: usize, case: Case) -> Result<Self, String> {
        if written.keywords.is_empty() || written.keywords.iter().any(|word| word.len() < 2 || word.contains('\0')) {
            return Err("`keywords` must name at least one text of two or more bytes".to_owned());
        }
        let automaton = dense::Builder::new()
            .configure(
                dense::Config::new()
                    .start_kind(StartKind::Anchored)
                    .dfa_size_limit(Some(AUTOMATON_BYTES_MAX))
                    .determinize_size_limit(Some(8 * AUTOMATON_BYTES_MAX)),
            )
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(4 * AUTOMATON_BYTES_MAX)))
            .build(&written.regex)
            .map_err(|error| format!("`regex` can't be compiled: {error}"))?;
        let lead = (0..=LEAD_MAX)
            .find(|&lead| is_anchored(&automaton, &written.keywords, lead, case))
            .ok_or("every match of `regex` must contain one of `keywords`, at one distance from its start")?;
        let group = match written.secret_group {
            0 => None,
            group => {
                let expression = regex::bytes::RegexBuilder::new(&written.regex)
                    .unicode(false)
                    .build()
                    .map_err(|error| format!("`regex` can't be compiled: {error}"))?;
                if expression.captures_len() <= group {
                    return Err(format!("`regex` has no group {group}"));
                }
                Some((expression, group))
            }
        };
        let needs_sign = lead == 0 && needs(&automaton, &written.regex, Ahead::SIGN);
        Ok(Self { rules: vec![rule], automaton, lead, needs_sign, group })
    }

    /// The end of the match that starts at `start`, if there is one.
    pub(super) fn longest(&self, text: &[u8], start: usize, work: &mut Work) -> Result<Option<usize>, Overrun> {
        let before = start.checked_sub(1).and_then(|at| text.get(at)).copied();
        let config = start::Config::new().anchored(Anchored::Yes).look_behind(before);
        let Ok(mut state) = self.automaton.start_state(&config) else { return Ok(None) };
        let rest = text.get(start..).unwrap_or_default();
        let mut end = None;
        for (at, &byte) in rest.iter().enumerate() {
            if at == MATCH_BYTES_MAX {
                work.spend(at)?;
                return Ok(end);
            }
            if byte == 0 {
                work.spend(at)?;
                return Ok(self.at_end(state, start + at).or(end));
            }
            state = self.automaton.next_state(state, byte);
            if self.automaton.is_special_state(state) {
                if self.automaton.is_match_state(state) {
                    end = Some(start + at);
                } else if self.automaton.is_dead_state(state) || self.automaton.is_quit_state(state) {
                    work.spend(at)?;
                    return Ok(end);
                }
            }
        }
        work.spend(rest.len())?;
        Ok(self.at_end(state, text.len()).or(end))
    }

    fn at_end(&self, state: StateID, at: usize) -> Option<usize> {
        let state = self.automaton.next_eoi_state(state);
        self.automaton.is_match_state(state).then_some(at)
    }

    /// The range of the secret in a match.
    pub(super) fn secret(&self, text: &[u8], whole: &Range<usize>) -> Range<usize> {
        let Some((expression, group)) = &self.group else { return whole.clone() };
        let matched = text.get(..whole.end).unwrap_or_default();
        expression
            .captures_at(matched, whole.start)
            .and_then(|captures| captures.get(*group))
            .map_or_else(|| whole.clone(), |group| group.range())
    }
}

/// What is known of the next sign that sets a URL with a password apart from all others: searched for once, however many URLs
/// there are.
#[derive(Default)]
pub(super) struct Ahead {
    /// It has none; one stands at its end, or the text ends there.
    without: Range<usize>,
}

impl Ahead {
    const SIGN: u8 = b'@';

    /// Whether a match that starts at or before `at` may have a sign beyond it.
    pub(super) fn has_sign(&mut self, text: &[u8], at: usize) -> bool {
        if !self.without.contains(&at) {
            let rest = text.get(at..).unwrap_or_default();
            self.without = at..at + memchr::memchr(Self::SIGN, rest).unwrap_or(rest.len());
        }
        self.without.end < text.len().min(at + MATCH_BYTES_MAX)
    }
}

/// Whether every match has one of `keywords` exactly `lead` bytes after its start.
fn is_anchored(automaton: &dense::DFA<Vec<u32>>, keywords: &[String], lead: usize, case: Case) -> bool {
    let befores = [None, Some(b'a'), Some(b' '), Some(b'\n')];
    let starts = befores.into_iter().filter_map(|before| {
        automaton.start_state(&start::Config::new().anchored(Anchored::Yes).look_behind(before)).ok()
    });
    let mut states: Vec<StateID> = starts.collect();
    for _ in 0..lead {
        let mut next: Vec<StateID> = Vec::new();
        for &state in &states {
            if automaton.is_match_state(automaton.next_eoi_state(state)) {
                return false;
            }
            next.extend((1..=u8::MAX).map(|byte| automaton.next_state(state, byte)));
        }
        next.sort_unstable();
        next.dedup();
        next.retain(|&state| !automaton.is_dead_state(state));
        if next.is_empty() || next.len() > 256 || next.iter().any(|&state| automaton.is_match_state(state)) {
            return false;
        }
        states = next;
    }
    let words: Vec<&[u8]> = keywords.iter().map(String::as_bytes).collect();
    states.iter().all(|&state| leads_to_keyword(automaton, state, (&words, 0), case))
}

/// Whether from `state` on, `depth` bytes into `words`, nothing but one of the words goes on.
fn leads_to_keyword(
    automaton: &dense::DFA<Vec<u32>>,
    state: StateID,
    (words, depth): (&[&[u8]], usize),
    case: Case,
) -> bool {
    if automaton.is_match_state(automaton.next_eoi_state(state)) {
        return false;
    }
    (1..=u8::MAX).all(|byte| {
        let next = automaton.next_state(state, byte);
        // Both cases of a letter mostly lead to one state, which need not be followed twice (and again at each letter).
        let is_again = case == Case::Any
            && byte.is_ascii_uppercase()
            && automaton.next_state(state, byte.to_ascii_lowercase()) == next;
        if automaton.is_dead_state(next) || is_again {
            return true;
        }
        let same = |other: u8| other == byte || (case == Case::Any && other.eq_ignore_ascii_case(&byte));
        let going_on: Vec<&[u8]> =
            words.iter().copied().filter(|word| word.get(depth).copied().is_some_and(same)).collect();
        if automaton.is_match_state(next) || going_on.is_empty() {
            return false;
        }
        going_on.iter().any(|word| word.len() == depth + 1)
            || leads_to_keyword(automaton, next, (&going_on, depth + 1), case)
    })
}

/// Whether every match of `regex`, which is what `automaton` accepts, has that byte.
fn needs(automaton: &dense::DFA<Vec<u32>>, regex: &str, sign: u8) -> bool {
    // Only a hint which expressions are worth the walk through all their states without it.
    if !regex.as_bytes().contains(&sign) {
        return false;
    }
    let mut seen: HashSet<StateID> = HashSet::new();
    let mut next: Vec<StateID> = (0..=u8::MAX)
        .map(Some)
        .chain([None])
        .filter_map(|before| {
            automaton.start_state(&start::Config::new().anchored(Anchored::Yes).look_behind(before)).ok()
        })
        .collect();
    while let Some(state) = next.pop() {
        if automaton.is_match_state(state) || automaton.is_match_state(automaton.next_eoi_state(state)) {
            return false;
        }
        if seen.insert(state) {
            next.extend((0..=u8::MAX).filter(|byte| *byte != sign).map(|byte| automaton.next_state(state, byte)));
            next.dedup();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    const REGEX: &str = r"://[^\s/:@\x00]{0,8}:([^\s/@\x00]{3,9})@[a-z]";

    fn form(regex: &str) -> Form {
        let keywords = format!("id = 'x'\nregex = '{regex}'\nkeywords = ['://']\nsecretGroup = 1");
        Form::compile(&toml::from_str(&keywords).unwrap(), 0, Case::Exact).unwrap()
    }

    #[test]
    fn a_sign_is_needed_where_no_match_goes_without() {
        assert!(form(REGEX).needs_sign);
        for regex in ["://([a-z@]{3})", "://(a+|b@)", "://(a+)(?:@b)?"] {
            assert!(!form(regex).needs_sign, "{regex}");
        }
    }

    proptest! {
        /// However the places are asked for, in order or not.
        #[test]
        fn what_has_no_sign_ahead_has_no_match(
            pieces in prop::collection::vec(prop::sample::select(vec!["://", "ab", ":", "abc", "@", "\0", " "]), 0..40),
        ) {
            let (text, form, mut ahead) = (pieces.concat(), form(REGEX), Ahead::default());
            for (start, _) in text.match_indices("://").chain(text.match_indices("://")) {
                let has_sign = ahead.has_sign(text.as_bytes(), start);
                prop_assert_eq!(has_sign, text[start..].contains('@'));
                let end = form.longest(text.as_bytes(), start, &mut Work::for_bytes(1 << 20)).unwrap();
                prop_assert!(has_sign || end.is_none());
            }
        }
    }
}
