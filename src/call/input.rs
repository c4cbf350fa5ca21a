//! Stage `input`: do the guardrails let these arguments go out? (contract §7)
//!
//! Also the adapter between the line and `policy/guard`: what a screening found, as a verdict and as notes for metrics and log.

use std::sync::Arc;

use super::{
    arguments,
    parse::Request,
    rewrite::{Splice, apply},
};
use crate::{
    model::{
        jsonrpc::{Document, Spanned},
        records::{GuardAction, GuardStage},
    },
    policy::{
        guard::{self, GuardPlan, GuardRule, Verdict},
        snapshot::{KeyPolicy, ToolPolicy},
    },
    refusal::{Refusal, Side},
};

/// One match of a rule, without the text that matched.
#[derive(Clone, Debug)]
pub struct Note {
    /// The rule's name.
    pub rule: Arc<str>,
    /// What the rule does.
    pub action: GuardAction,
    /// Arguments or result.
    pub side: Side,
}

/// What the guardrails found in a call's arguments.
#[derive(Debug, Default)]
pub struct Screened {
    /// The matches, for metrics and log.
    pub notes: Vec<Note>,
    /// The arguments with the matches replaced, if a rule redacts.
    pub redacted: Option<Vec<u8>>,
    /// The detector that redacted.
    detector: &'static str,
    /// Engines that are still to be asked.
    pub asking: Asking,
    /// Rules whose own detector failed and that allow that.
    pub failures: Vec<Arc<str>>,
}

/// Rules with an external engine, and the texts to ask it about.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// The rules.
    pub rules: Vec<Arc<GuardRule>>,
    /// What was looked at.
    pub texts: Vec<String>,
}

impl Asking {
    /// Whether nobody has to be asked.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Takes in what another part of the same call asks for.
    pub fn extend(&mut self, rules: impl Iterator<Item = Arc<GuardRule>>, texts: Vec<String>) {
        for rule in rules {
            if !self.rules.iter().any(|known| Arc::ptr_eq(known, &rule)) {
                self.rules.push(rule);
            }
        }
        self.texts.extend(texts);
    }
}

impl Screened {
    /// Screens one part of a document; the splices that redact it, if any.
    ///
    /// # Refuses
    /// - [`Refusal::GuardrailBlocked`], [`Refusal::GuardrailUnavailable`]
    pub fn judge(
        &mut self,
        plan: &GuardPlan,
        document: &Document<'_>,
        part: &Spanned<'_>,
        side: Side,
    ) -> Result<Option<Vec<Splice>>, Refusal> {
        let stage = match side {
            Side::Input => GuardStage::Input,
            Side::Output => GuardStage::Output,
        };
        let screening = guard::screen(plan, document, part, stage);
        for found in &screening.matches {
            if let Some(rule) = plan.rules.get(found.rule) {
                self.notes.push(Note { rule: rule.name.as_str().into(), action: found.action, side });
            }
        }
        let engines = screening.engines.iter().filter_map(|index| plan.rules.get(*index).cloned());
        self.asking.extend(engines, screening.texts);
        let failed = screening.engine_errors.iter().filter_map(|error| plan.rules.get(error.rule));
        self.failures.extend(failed.map(|rule| Arc::from(rule.name.as_str())));
        match screening.verdict {
            Verdict::Pass => Ok(None),
            Verdict::Block { detector, .. } => Err(Refusal::GuardrailBlocked { side, detector }),
            Verdict::Unavailable { .. } => Err(Refusal::GuardrailUnavailable(side)),
            Verdict::Redact(edits) => {
                self.detector = screening
                    .matches
                    .iter()
                    .find(|found| found.action == GuardAction::Redact)
                    .map_or("", |found| found.detector);
                Ok(Some(edits.into_iter().map(Splice::from).collect()))
            }
        }
    }
}

impl From<guard::Edit> for Splice {
    fn from(edit: guard::Edit) -> Self {
        Self { span: edit.span, with: edit.replacement }
    }
}

/// Screens the arguments, and what else of the request's params a person or server may have written: `_meta` and `inputResponses`.
/// Only arguments are redacted; a match elsewhere under a redacting rule blocks. What was found stands in `screened`, also of what is
/// refused.
///
/// # Refuses
/// - [`Refusal::GuardrailBlocked`], [`Refusal::GuardrailUnavailable`]
pub fn screen(
    screened: &mut Screened,
    (key, tool): (&KeyPolicy, &ToolPolicy),
    (document, request): (&Document<'_>, &Request<'_>),
    arguments: Option<&Spanned<'_>>,
) -> Result<(), Refusal> {
    let plan = tool.input.plan(&key.project);
    if plan.is_empty() {
        return Ok(());
    }
    if let Some(arguments) = arguments
        && let Some(splices) = part(screened, plan, document, (arguments, true))?
    {
        screened.redacted = Some(apply(document.raw(), arguments.span.clone(), splices));
    }
    beside(screened, plan, document, request)
}

/// Screens one part of a request; the splices that redact it, if it `may_change`.
///
/// # Refuses
/// - [`Refusal::GuardrailBlocked`], also where a redaction cannot be carried out; [`Refusal::GuardrailUnavailable`]
pub(super) fn part(
    screened: &mut Screened,
    plan: &GuardPlan,
    document: &Document<'_>,
    (part, may_change): (&Spanned<'_>, bool),
) -> Result<Option<Vec<Splice>>, Refusal> {
    if plan.is_empty() {
        return Ok(None);
    }
    match screened.judge(plan, document, part, Side::Input)? {
        Some(_) if !may_change => Err(Refusal::GuardrailBlocked { side: Side::Input, detector: screened.detector }),
        splices => Ok(splices),
    }
}

/// Screens what goes along with a request: `_meta` and `inputResponses`. It is never redacted.
///
/// # Refuses
/// - as [`part`]
pub(super) fn beside(
    screened: &mut Screened,
    plan: &GuardPlan,
    document: &Document<'_>,
    request: &Request<'_>,
) -> Result<(), Refusal> {
    for beside in [request.meta.clone(), request.param("inputResponses")].into_iter().flatten() {
        part(screened, plan, document, (&beside, false))?;
    }
    Ok(())
}

/// Checks redacted arguments against the inputSchema again.
///
/// # Refuses
/// - [`Refusal::GuardrailBlocked`]: they do not match any more.
pub fn recheck(tool: &ToolPolicy, redacted: &[u8], screened: &Screened, bytes_max: u64) -> Result<(), Refusal> {
    let blocked = || Refusal::GuardrailBlocked { side: Side::Input, detector: screened.detector };
    let mut scratch = Vec::new();
    let document = Document::parse(redacted, &mut scratch).map_err(|_| blocked())?;
    // The limit is on what was received: a replacement may be longer than what it replaces.
    let bytes_max = bytes_max.max(u64::try_from(redacted.len()).unwrap_or(u64::MAX));
    arguments::check(tool, &document.spanned_root(), bytes_max).map_err(|_| blocked())
}
