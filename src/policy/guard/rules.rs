//! Rule files in gitleaks' field names, compiled into one gate and an automaton a rule.
//!
//! The gate (SIMD or Aho-Corasick) finds keywords. Only there, the rules of that keyword are tried: anchored, at a fixed
//! distance before the keyword, by a dense ASCII automaton that is stepped by hand. So no text is ever searched by an expression,
//! and the bytes that are looked at are counted exactly. Knows neither JSON nor what the rules are about.
//!
//! **Invariant.** A zero byte ends every match: texts that are joined with zero bytes are told apart.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use memchr::memmem;
use regex_automata::{
    Anchored,
    dfa::{Automaton, StartKind, dense},
    nfa::thompson,
    util::{primitives::StateID, start, syntax},
};
use serde::Deserialize;

use super::work::{Finding, Overrun, Work};

/// The most bytes that one match may have, from where it starts. A longer secret is cut there.
pub(super) const MATCH_BYTES_MAX: usize = 16 * 1024;
/// The farthest that a keyword may stand from the start of its matches, in bytes.
const LEAD_MAX: usize = 40;
/// Units of work of one attempt besides its bytes.
const ATTEMPT_UNITS: usize = 6;
/// Units of work of one finding.
const FINDING_UNITS: usize = 32;
/// The largest automaton of one rule, in bytes.
const AUTOMATON_BYTES_MAX: usize = 2 << 20;
/// The most keywords in one SIMD searcher: more make it slower than two.
const PACKED_KEYWORDS_MAX: usize = 48;
/// Keywords shorter than this have a searcher of their own, so that they don't blunt the one of the longer.
const FINGERPRINT_BYTES: usize = 4;

/// Judges a match: the whole text, the secret's range, the rule's whole match.
pub(super) type Check = fn(&[u8], &Range<usize>, &Range<usize>) -> bool;

/// A rule file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "title")]
    _title: String,
    rules: Vec<Written>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    #[serde(default, rename = "description")]
    _description: String,
    regex: String,
    keywords: Vec<String>,
    #[serde(default)]
    entropy: f64,
    #[serde(default, rename = "secretGroup")]
    secret_group: usize,
}

/// Whether keywords are matched as written or in any ASCII case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// As written; the gate is a SIMD search.
    Exact,
    /// In any ASCII case; the gate is an automaton.
    Any,
}

/// A compiled rule file.
#[derive(Debug)]
pub(super) struct RuleSet {
    rules: Vec<Rule>,
    forms: Vec<Form>,
    gates: Vec<Gate>,
}

#[derive(Debug)]
struct Rule {
    id: String,
    entropy: f64,
    check: Check,
}

/// An expression, and the rules that have it: it is tried once for all of them.
#[derive(Debug)]
struct Form {
    rules: Vec<usize>,
    automaton: dense::DFA<Vec<u32>>,
    lead: usize,
    /// The expression again, for the range of the secret's group within a match.
    group: Option<(regex::bytes::Regex, usize)>,
}

/// A searcher and, for each of its keywords, the forms to try.
#[derive(Debug)]
struct Gate {
    searcher: Searcher,
    forms: Vec<Vec<usize>>,
}

#[derive(Debug)]
enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
    One(Box<memmem::Finder<'static>>),
}

impl RuleSet {
    /// Reads and compiles `text`; `check_of` names the further check of a rule.
    ///
    /// # Errors
    /// In words: the text is no rule file, or an expression can't be compiled or can't be anchored at its keywords.
    pub(super) fn compile(text: &str, case: Case, check_of: fn(&str) -> Check) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut rules = Vec::with_capacity(file.rules.len());
        let mut forms: Vec<Form> = Vec::with_capacity(file.rules.len());
        for (index, written) in file.rules.iter().enumerate() {
            let twin = |form: &&mut Form| {
                form.rules.first().and_then(|rule| file.rules.get(*rule)).is_some_and(|other| other.is_like(written))
            };
            match forms.iter_mut().find(twin) {
                Some(form) => form.rules.push(index),
                None => forms.push(
                    Form::compile(written, index, case).map_err(|error| format!("rule `{}`: {error}", written.id))?,
                ),
            }
            rules.push(Rule { id: written.id.clone(), entropy: written.entropy, check: check_of(&written.id) });
        }
        let gates = build_gates(&file.rules, &forms, case)?;
        Ok(Self { rules, forms, gates })
    }

    /// The rules' ids, in the file's order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.id.as_str())
    }

    /// Finds every match of the rules that are `wanted` (by their place in the file; empty: all).
    pub(super) fn scan(
        &'static self,
        text: &[u8],
        wanted: &[bool],
        work: &mut Work,
        found: &mut Vec<Finding>,
    ) -> Result<(), Overrun> {
        work.spend(text.len())?;
        for gate in &self.gates {
            let mut from = 0;
            while let Some((start, keyword)) = gate.searcher.find(text, from) {
                from = start + 1;
                for form in gate.forms.get(keyword).into_iter().flatten().filter_map(|form| self.forms.get(*form)) {
                    if form.rules.iter().any(|&rule| is_wanted(wanted, rule)) {
                        work.spend(ATTEMPT_UNITS)?;
                        self.attempt(form, (text, start, wanted), work, found)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn attempt(
        &'static self,
        form: &Form,
        (text, keyword, wanted): (&[u8], usize, &[bool]),
        work: &mut Work,
        found: &mut Vec<Finding>,
    ) -> Result<(), Overrun> {
        let Some(start) = keyword.checked_sub(form.lead) else { return Ok(()) };
        let Some(end) = form.longest(text, start, work)? else { return Ok(()) };
        let whole = start..end;
        for &index in form.rules.iter().filter(|&&rule| is_wanted(wanted, rule)) {
            let Some(rule) = self.rules.get(index) else { continue };
            work.spend(FINDING_UNITS)?;
            let secret = form.secret(text, &whole);
            let entropic = rule.entropy <= 0.0
                || text.get(secret.clone()).is_some_and(|bytes| super::checks::entropy(bytes) >= rule.entropy);
            if entropic && (rule.check)(text, &secret, &whole) {
                found.push(Finding { range: secret, kind: &rule.id });
            }
        }
        Ok(())
    }
}

fn is_wanted(wanted: &[bool], rule: usize) -> bool {
    wanted.is_empty() || wanted.get(rule).copied().unwrap_or(false)
}

impl Written {
    /// Whether both have the same matches, and the same secret in each.
    fn is_like(&self, other: &Self) -> bool {
        self.regex == other.regex && self.keywords == other.keywords && self.secret_group == other.secret_group
    }
}

impl Form {
    fn compile(written: &Written, rule: usize, case: Case) -> Result<Self, String> {
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
        Ok(Self { rules: vec![rule], automaton, lead, group })
    }

    /// The end of the match that starts at `start`, if there is one.
    fn longest(&self, text: &[u8], start: usize, work: &mut Work) -> Result<Option<usize>, Overrun> {
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

    fn secret(&self, text: &[u8], whole: &Range<usize>) -> Range<usize> {
        let Some((expression, group)) = &self.group else { return whole.clone() };
        let matched = text.get(..whole.end).unwrap_or_default();
        expression
            .captures_at(matched, whole.start)
            .and_then(|captures| captures.get(*group))
            .map_or_else(|| whole.clone(), |group| group.range())
    }
}

impl Searcher {
    /// The first keyword at or after `from`: where it starts, and which it is.
    fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        if from >= text.len() {
            return None;
        }
        match self {
            Self::Packed(searcher) => {
                searcher.find_in(text, (from..text.len()).into()).map(|hit| (hit.start(), hit.pattern().as_usize()))
            }
            Self::Automaton(automaton) => automaton
                .find(aho_corasick::Input::new(text).range(from..))
                .map(|hit| (hit.start(), hit.pattern().as_usize())),
            Self::One(finder) => finder.find(text.get(from..)?).map(|at| (from + at, 0)),
        }
    }
}

/// Keywords without those that start with another, so that at most one of them stands at any place.
fn build_gates(rules: &[Written], forms: &[Form], case: Case) -> Result<Vec<Gate>, String> {
    let fold = |word: &str| if case == Case::Any { word.to_ascii_lowercase() } else { word.to_owned() };
    let mut words: Vec<String> = rules.iter().flat_map(|rule| &rule.keywords).map(|word| fold(word)).collect();
    words.sort_unstable();
    words.dedup();
    let mut shortest: Vec<String> = Vec::new();
    for word in words {
        if !shortest.last().is_some_and(|last| word.starts_with(last.as_str())) {
            shortest.push(word);
        }
    }
    let mut pools: Vec<Vec<String>> = Vec::new();
    if case == Case::Any {
        pools.push(shortest);
    } else {
        let (long, short): (Vec<_>, Vec<_>) = shortest.into_iter().partition(|word| word.len() >= FINGERPRINT_BYTES);
        let (three, two): (Vec<_>, Vec<_>) = short.into_iter().partition(|word| word.len() == FINGERPRINT_BYTES - 1);
        pools.extend(long.chunks(PACKED_KEYWORDS_MAX).map(<[String]>::to_vec));
        pools.extend(three.chunks(PACKED_KEYWORDS_MAX).map(<[String]>::to_vec));
        pools.extend(two.into_iter().map(|word| vec![word]));
    }
    pools
        .into_iter()
        .filter(|pool| !pool.is_empty())
        .map(|pool| build_gate(pool, (rules, forms), (case, &fold)))
        .collect()
}

fn build_gate(
    pool: Vec<String>,
    (rules, forms): (&[Written], &[Form]),
    (case, fold): (Case, &dyn Fn(&str) -> String),
) -> Result<Gate, String> {
    let tried = |word: &String| {
        let of_word = |rule: &Written| rule.keywords.iter().any(|keyword| fold(keyword).starts_with(word.as_str()));
        let is_tried = |form: &Form| form.rules.first().and_then(|rule| rules.get(*rule)).is_some_and(of_word);
        forms.iter().enumerate().filter(|(_, form)| is_tried(form)).map(|(index, _)| index).collect()
    };
    let tried_forms = pool.iter().map(tried).collect();
    let searcher = match (case, pool.as_slice()) {
        (Case::Exact, [word]) => Some(Searcher::One(Box::new(memmem::Finder::new(word).into_owned()))),
        (Case::Exact, _) => packed::Searcher::new(&pool).map(Searcher::Packed),
        (Case::Any, _) => None,
    };
    let searcher = match searcher {
        Some(searcher) => searcher,
        None => Searcher::Automaton(
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::DFA))
                .ascii_case_insensitive(case == Case::Any)
                .build(&pool)
                .map_err(|error| error.to_string())?,
        ),
    };
    Ok(Gate { searcher, forms: tried_forms })
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
