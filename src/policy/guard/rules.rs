//! Rule files in gitleaks' field names, compiled into one gate and an automaton a rule.
//!
//! The gate (SIMD or Aho-Corasick) finds keywords. Only there, the rules of that keyword are tried: anchored, at a fixed
//! distance before the keyword, by a dense ASCII automaton that is stepped by hand. So no text is ever searched by an expression,
//! and the bytes that are looked at are counted exactly. Knows neither JSON nor what the rules are about.
//!
//! **Invariant.** A zero byte ends every match: texts that are joined with zero bytes are told apart.

use std::ops::Range;

use serde::Deserialize;

use super::{
    form::{Ahead, Form},
    gate::{Gate, build_gates},
    work::{Finding, Overrun, Work},
};

/// Units of work of one attempt besides its bytes.
const ATTEMPT_UNITS: usize = 6;
/// Units of work of one finding.
const FINDING_UNITS: usize = 32;
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

/// A rule as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) id: String,
    #[serde(default, rename = "description")]
    _description: String,
    pub(super) regex: String,
    pub(super) keywords: Vec<String>,
    #[serde(default)]
    entropy: f64,
    #[serde(default, rename = "secretGroup")]
    pub(super) secret_group: usize,
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
            let mut ahead = Ahead::default();
            while let Some((start, keyword)) = gate.searcher.find(text, from) {
                from = start + 1;
                for form in gate.forms.get(keyword).into_iter().flatten().filter_map(|form| self.forms.get(*form)) {
                    if form.rules.iter().any(|&rule| is_wanted(wanted, rule)) {
                        work.spend(ATTEMPT_UNITS)?;
                        if form.needs_sign && !ahead.has_sign(text, start) {
                            continue;
                        }
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
