//! A guardrail as meant: compiled once with the policy, shared by all calls.

use std::sync::Arc;

use crate::model::{
    records::{Detector, GuardAction, GuardStage, Guardrail, OnEngineError},
    units::Span,
};

use super::{
    corpus::Corpus,
    injection, invisible,
    keywords::Keywords,
    pattern::{Patterns, Want},
    personal::PersonalData,
    secrets::Secrets,
    urls::Urls,
    work::{Finding, Overrun, Work},
};

/// A compiled `[[guardrail]]`, without its scope, which is the policy's to judge.
#[derive(Debug)]
pub struct GuardRule {
    /// The rule's name.
    pub name: String,
    /// Arguments, results or both.
    pub stage: GuardStage,
    /// What happens on a match.
    pub action: GuardAction,
    /// The detector's name, as messages, metrics and redactions use it.
    pub detector: &'static str,
    /// What happens when the detector fails.
    pub on_engine_error: OnEngineError,
    kind: Kind,
}

/// Where the external engine of a rule is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAddress {
    /// Where to POST.
    pub url: String,
    /// Time limit of one question.
    pub timeout: Span,
}

/// The rules that apply to a call, in the policy's order.
#[derive(Clone, Debug, Default)]
pub struct GuardPlan {
    /// In evaluation order.
    pub rules: Vec<Arc<GuardRule>>,
}

impl GuardPlan {
    /// Whether no rule applies.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether an external engine has to be asked at `stage`.
    #[must_use]
    pub fn needs_engine(&self, stage: GuardStage) -> bool {
        self.rules.iter().any(|rule| rule.applies_at(stage) && rule.engine().is_some())
    }
}

#[derive(Debug)]
enum Kind {
    Secrets(Secrets),
    PersonalData(PersonalData),
    PromptInjection,
    InvisibleText,
    Keywords(Keywords),
    Pattern(Patterns),
    Urls(Urls),
    Engine(EngineAddress),
    /// Fails as no shipped detector should.
    #[cfg(test)]
    Panics,
}

impl GuardRule {
    /// Compiles a guardrail.
    ///
    /// # Errors
    /// In words: an unknown type, an expression that the linear engine refuses, a host that is none, an empty list.
    pub fn compile(guardrail: &Guardrail) -> Result<Arc<Self>, String> {
        let kind = match &guardrail.detector {
            Detector::Secrets { types } => Kind::Secrets(Secrets::compile(types)?),
            Detector::PersonalData { types } => Kind::PersonalData(PersonalData::compile(types)?),
            Detector::PromptInjection => {
                injection::compile()?;
                Kind::PromptInjection
            }
            Detector::InvisibleText => Kind::InvisibleText,
            Detector::Keywords { words } => Kind::Keywords(Keywords::compile(words)?),
            Detector::Pattern { patterns } => Kind::Pattern(Patterns::compile(patterns)?),
            Detector::Urls { allow, deny } => Kind::Urls(Urls::compile(allow, deny)?),
            Detector::Engine { url, timeout } => Kind::Engine(EngineAddress { url: url.clone(), timeout: *timeout }),
        };
        Ok(Arc::new(Self {
            name: guardrail.name.clone(),
            stage: guardrail.stage,
            action: guardrail.action,
            detector: guardrail.detector.name(),
            on_engine_error: guardrail.on_engine_error,
            kind,
        }))
    }

    /// A rule whose detector panics.
    #[cfg(test)]
    pub(super) fn panicking(action: GuardAction, on_engine_error: OnEngineError) -> Arc<Self> {
        let (name, stage) = ("panics".to_owned(), GuardStage::Both);
        Arc::new(Self { name, stage, action, detector: "secrets", on_engine_error, kind: Kind::Panics })
    }

    /// Whether the rule looks at `stage`.
    #[must_use]
    pub fn applies_at(&self, stage: GuardStage) -> bool {
        self.stage == stage || self.stage == GuardStage::Both || stage == GuardStage::Both
    }

    /// The external engine of the rule, if it has one.
    #[must_use]
    pub const fn engine(&self) -> Option<&EngineAddress> {
        match &self.kind {
            Kind::Engine(address) => Some(address),
            _ => None,
        }
    }

    /// What the rule may spend on a corpus.
    pub(super) fn allowance(&self, corpus: &Corpus) -> Work {
        let weight = match &self.kind {
            Kind::Pattern(patterns) => patterns.count(),
            _ => 1,
        };
        Work::for_bytes(corpus.text.len().saturating_mul(weight))
    }

    /// Finds matches, at places in the corpus' text. What was found before an overrun is kept.
    pub(super) fn find(&self, corpus: &Corpus, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        let text = corpus.text.as_str();
        match &self.kind {
            Kind::Secrets(secrets) => secrets.scan(text.as_bytes(), work, found),
            Kind::PersonalData(types) => types.scan(text.as_bytes(), work, found),
            Kind::PromptInjection => injection::scan(text.as_bytes(), work, found),
            Kind::Keywords(words) => words.scan(text, work, found),
            Kind::Urls(urls) => in_each(corpus, found, |text, _, found| urls.scan(text, work, found)),
            Kind::InvisibleText => in_each(corpus, found, |text, _, found| invisible::scan(text, work, found)),
            Kind::Pattern(patterns) => in_each(corpus, found, |text, is_joined, found| {
                let want = if self.action == GuardAction::Redact || is_joined { Want::All } else { Want::First };
                patterns.scan(text, want, work, found)
            }),
            Kind::Engine(_) => Ok(()),
            #[cfg(test)]
            Kind::Panics => {
                #[allow(clippy::panic, reason = "the tests' own detector")]
                {
                    panic!("as the tests want it")
                }
            }
        }
    }
}

/// For detectors to which it matters where a text starts and ends.
fn in_each(
    corpus: &Corpus,
    found: &mut Vec<Finding>,
    mut scan: impl FnMut(&str, bool, &mut Vec<Finding>) -> Result<(), Overrun>,
) -> Result<(), Overrun> {
    for (start, text, is_joined) in corpus.texts() {
        let before = found.len();
        let outcome = scan(text, is_joined, found);
        for finding in found.iter_mut().skip(before) {
            finding.range = finding.range.start + start..finding.range.end + start;
        }
        outcome?;
    }
    Ok(())
}
