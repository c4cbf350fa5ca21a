//! Detector `secrets`: credentials by their form. The rules are data: `conf/guardrails/secrets.toml`.

use std::sync::{Arc, LazyLock};

use super::{
    checks,
    rules::{Case, RuleSet},
    work::{Finding, Overrun, Work},
};

/// The shipped rules; compiled once a process. A fault in them is found by this module's tests.
static RULES: LazyLock<Result<RuleSet, String>> = LazyLock::new(|| {
    RuleSet::compile(include_str!("../../../conf/guardrails/secrets.toml"), Case::Exact, checks::of_secret)
});

/// Which of the shipped rules are wanted.
#[derive(Clone, Debug)]
pub(super) struct Secrets {
    /// By place in the file; empty: all.
    wanted: Arc<[bool]>,
}

impl Secrets {
    /// Every rule.
    pub(super) fn all() -> Self {
        Self { wanted: Arc::from([]) }
    }

    /// The rules that `types` name: an id (`jwt`), or the first words of some (`github`, `aws`); `_` is as good as `-`.
    ///
    /// # Errors
    /// In words, when a type names no rule.
    pub(super) fn compile(types: &[String]) -> Result<Self, String> {
        let rules = RULES.as_ref().map_err(Clone::clone)?;
        if types.is_empty() {
            return Ok(Self::all());
        }
        let mut wanted = vec![false; rules.ids().count()];
        for kind in types {
            let asked = kind.to_ascii_lowercase().replace('_', "-");
            let mut known = false;
            for (slot, id) in wanted.iter_mut().zip(rules.ids()) {
                let is_named = id == asked || id.strip_prefix(asked.as_str()).is_some_and(|rest| rest.starts_with('-'));
                known |= is_named;
                *slot |= is_named;
            }
            if !known {
                let mut names: Vec<&str> = rules.ids().collect();
                names.sort_unstable();
                return Err(format!("`{kind}` is no type of `secrets`; there are {}", names.join(", ")));
            }
        }
        Ok(Self { wanted: wanted.into() })
    }

    /// Finds credentials.
    pub(super) fn scan(&self, text: &[u8], work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        match RULES.as_ref() {
            Ok(rules) => rules.scan(text, &self.wanted, work, found),
            Err(_) => Err(Overrun),
        }
    }
}
