//! One part of a document against one plan: all rules are asked, the strongest action wins.

use std::{
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::model::{
    jsonrpc::{Document, Leaf, Spanned},
    records::{GuardAction, GuardStage, OnEngineError},
};

use super::{
    corpus::{Corpus, Located, Place},
    edit::{Cut, Edit, edit_leaf, merge},
    label,
    rule::{GuardPlan, GuardRule},
    work::Finding,
};

/// The most matches of one rule that [`Screening::matches`] lists; redaction knows them all.
pub const MATCHES_REPORTED_MAX: usize = 256;

/// What the rules found, and what is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Screening {
    /// Every match of every rule, in the order of the rules; at most [`MATCHES_REPORTED_MAX`] of each.
    pub matches: Vec<Match>,
    /// What is to be done.
    pub verdict: Verdict,
    /// Rules whose detector failed, whatever they say of that.
    pub engine_errors: Vec<EngineError>,
    /// Rules with an external engine, by their place in the plan: to be asked about [`Screening::texts`].
    pub engines: Vec<usize>,
    /// The texts that were looked at; empty if no engine is to be asked.
    pub texts: Vec<String>,
}

/// A match. Says where, never what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The rule, by its place in the plan.
    pub rule: usize,
    /// The rule's action.
    pub action: GuardAction,
    /// The detector's name.
    pub detector: &'static str,
    /// The detector's type, such as `jwt`; or its name if it has but one.
    pub kind: &'static str,
    /// In what kind of text.
    pub place: Place,
    /// The bytes of that text in the document (of the first, across text blocks).
    pub span: Range<usize>,
    /// Where in that text, in bytes after unescaping.
    pub at: Range<usize>,
}

/// What is to be done with the part that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    #[default]
    Pass,
    /// These edits make it pass; apply with [`super::apply_edits`].
    Redact(Vec<Edit>),
    /// Refuse: `guardrail_blocked`.
    Block {
        /// The first rule that blocks, by its place in the plan.
        rule: usize,
        /// Its detector.
        detector: &'static str,
    },
    /// Refuse: `guardrail_unavailable`.
    Unavailable {
        /// The first rule that failed and does not allow that, by its place in the plan.
        rule: usize,
    },
}

/// A detector that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineError {
    /// The rule, by its place in the plan.
    pub rule: usize,
    /// How it failed.
    pub fault: EngineFault,
}

/// How a detector failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFault {
    /// It spent its allowance of work.
    Budget,
    /// It panicked.
    Panic,
}

/// Asks every rule of `plan` that looks at `stage` about the texts at and below `part`, a value of `document`.
#[must_use]
pub fn screen(plan: &GuardPlan, document: &Document<'_>, part: &Spanned<'_>, stage: GuardStage) -> Screening {
    let mut screening = Screening::default();
    let rules = || plan.rules.iter().enumerate().filter(|(_, rule)| rule.applies_at(stage));
    if rules().next().is_none() {
        return screening;
    }
    let corpus = catch_unwind(AssertUnwindSafe(|| Corpus::of(part))).ok();
    let mut judge = Judge { screening: &mut screening, cuts: BTreeMap::new(), blocked: None, unavailable: None };
    for (index, rule) in rules() {
        match &corpus {
            None => judge.failed(index, rule, EngineFault::Panic),
            Some(_) if rule.engine().is_some() => judge.screening.engines.push(index),
            Some(corpus) => judge.ask(index, rule, corpus),
        }
    }
    let (cuts, blocked, unavailable) = (judge.cuts, judge.blocked, judge.unavailable);
    let corpus = corpus.unwrap_or_else(|| Corpus::of_text(""));
    screening.verdict = match (blocked, unavailable) {
        (Some((rule, detector)), _) => Verdict::Block { rule, detector },
        (None, Some(rule)) => Verdict::Unavailable { rule },
        (None, None) if cuts.is_empty() => Verdict::Pass,
        (None, None) => Verdict::Redact(edits(document.raw(), &corpus, cuts)),
    };
    if !screening.engines.is_empty() {
        screening.texts = corpus.plain_texts().filter(|text| !text.is_empty()).map(str::to_owned).collect();
    }
    screening
}

/// The edits that make `cuts`, which are by leaf.
pub(super) fn edits(raw: &[u8], corpus: &Corpus, cuts: BTreeMap<usize, Vec<Cut>>) -> Vec<Edit> {
    let edit = |(leaf, cuts): (usize, Vec<Cut>)| {
        let (kind, span) = corpus.leaf(leaf)?;
        Some(edit_leaf(raw, &Leaf { kind, text: corpus.leaf_text(leaf), span }, &merge(cuts)))
    };
    cuts.into_iter().filter_map(edit).collect()
}

/// What has been found so far.
struct Judge<'s> {
    screening: &'s mut Screening,
    cuts: BTreeMap<usize, Vec<Cut>>,
    blocked: Option<(usize, &'static str)>,
    unavailable: Option<usize>,
}

impl Judge<'_> {
    fn ask(&mut self, index: usize, rule: &GuardRule, corpus: &Corpus) {
        let mut found = Vec::new();
        let mut work = rule.allowance(corpus);
        let outcome = catch_unwind(AssertUnwindSafe(|| rule.find(corpus, &mut work, &mut found)));
        self.take(index, rule, corpus, &found);
        match outcome {
            Ok(Ok(())) if corpus.is_cut => self.failed(index, rule, EngineFault::Budget),
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.failed(index, rule, EngineFault::Budget),
            Err(_) => self.failed(index, rule, EngineFault::Panic),
        }
    }

    fn take(&mut self, index: usize, rule: &GuardRule, corpus: &Corpus, found: &[Finding]) {
        for (reported, (kind, located)) in distinct(corpus, found).into_iter().enumerate() {
            let Some((leaf, at)) = located.parts.first().cloned() else { continue };
            let is_value = located.place == Place::Value;
            match rule.action {
                GuardAction::Redact if is_value => {
                    let cut = Cut { range: at.clone(), label: label(rule.detector) };
                    self.cuts.entry(leaf).or_default().push(cut);
                }
                GuardAction::Redact | GuardAction::Block => {
                    self.blocked.get_or_insert((index, rule.detector));
                }
                GuardAction::Observe => {}
            }
            if reported < MATCHES_REPORTED_MAX {
                let span = corpus.leaf(leaf).map(|(_, span)| span).unwrap_or_default();
                let (action, detector, place) = (rule.action, rule.detector, located.place);
                self.screening.matches.push(Match { rule: index, action, detector, kind, place, span, at });
            }
        }
    }

    fn failed(&mut self, rule_index: usize, rule: &GuardRule, fault: EngineFault) {
        self.screening.engine_errors.push(EngineError { rule: rule_index, fault });
        if rule.on_engine_error == OnEngineError::Block {
            self.unavailable.get_or_insert(rule_index);
        }
    }
}

/// The findings where they stand, each once: what is found in several readings of a text is one match.
pub(super) fn distinct(corpus: &Corpus, found: &[Finding]) -> Vec<(&'static str, Located)> {
    let locate = |finding: &Finding| Some((finding.kind, corpus.locate(&finding.range)?));
    let mut located: Vec<(&'static str, Located)> = found.iter().filter_map(locate).collect();
    let place = |located: &Located| located.parts.first().map(|(leaf, range)| (*leaf, range.start));
    located.sort_by(|(kind, one), (other, two)| (one.place, kind, place(one)).cmp(&(two.place, other, place(two))));
    located.dedup_by(|(kind, next), (before_kind, before)| {
        let is_again = kind == before_kind && next.place == before.place && overlap(before, next);
        if is_again && let (Some((_, range)), Some((_, more))) = (before.parts.first_mut(), next.parts.first()) {
            range.end = range.end.max(more.end);
        }
        is_again
    });
    located.sort_by_key(|(_, located)| place(located));
    located
}

fn overlap(before: &Located, next: &Located) -> bool {
    match (before.parts.first(), next.parts.first()) {
        (Some((leaf, range)), Some((other, more))) => leaf == other && more.start < range.end,
        _ => false,
    }
}
