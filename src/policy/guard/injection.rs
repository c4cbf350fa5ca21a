//! Detector `prompt_injection`: phrases that address a model from inside a document. A heuristic, and no more than that.
//!
//! The rules are data: `conf/guardrails/prompt_injection.toml`, which says what they can't see.

use std::sync::LazyLock;

use super::{
    checks,
    rules::{Case, RuleSet},
    work::{Finding, Overrun, Work},
};

static RULES: LazyLock<Result<RuleSet, String>> = LazyLock::new(|| {
    RuleSet::compile(include_str!("../../../conf/guardrails/prompt_injection.toml"), Case::Any, |_| checks::passes)
});

/// Compiles the shipped rules, once a process.
///
/// # Errors
/// In words, when they are at fault; this module's tests find that first.
pub(super) fn compile() -> Result<(), String> {
    RULES.as_ref().map(|_| ()).map_err(Clone::clone)
}

/// Finds the phrases.
pub(super) fn scan(text: &[u8], work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
    match RULES.as_ref() {
        Ok(rules) => rules.scan(text, &[], work, found),
        Err(_) => Err(Overrun),
    }
}
