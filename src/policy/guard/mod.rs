//! (stub until the room is merged)
use std::{ops::Range, sync::Arc};
use crate::model::{jsonrpc::{Document, Spanned}, records::{GuardAction, Guardrail}};
/// x
#[derive(Debug, Default)] pub struct CredentialMask;
impl CredentialMask { /// x
 pub fn new(_v: &[Vec<u8>]) -> Self { Self }
 /// x
 pub fn mask_text(&self, _t: &str) -> Option<String> { None }
 /// x
 pub fn edits(&self, _d: &Document<'_>, _p: &Spanned<'_>) -> Vec<Edit> { Vec::new() } }
/// x
#[derive(Clone, Debug)] pub struct Edit { /// x
 pub span: Range<usize>, /// x
 pub replacement: Vec<u8> }
/// x
#[derive(Debug)] pub struct GuardRule { /// x
 pub name: Arc<str> }
impl GuardRule { /// x
 /// # Errors
 /// x
 pub fn compile(g: &Guardrail) -> Result<Arc<Self>, String> { Ok(Arc::new(Self { name: g.name.as_str().into() })) } }
/// x
#[derive(Debug, Default)] pub struct GuardPlan { /// x
 pub rules: Vec<Arc<GuardRule>> }
impl GuardPlan { /// x
 pub fn is_empty(&self) -> bool { self.rules.is_empty() } }
/// x
#[derive(Clone, Copy, Debug)] pub enum GuardStage { /// x
 Input, /// x
 Output }
/// x
#[derive(Debug)] pub enum Verdict { /// x
 Pass, /// x
 Redact(Vec<Edit>), /// x
 Block { /// x
 rule: usize, /// x
 detector: &'static str }, /// x
 Unavailable { /// x
 rule: usize } }
/// x
#[derive(Debug)] pub struct Match { /// x
 pub rule: usize, /// x
 pub action: GuardAction, /// x
 pub detector: &'static str }
/// x
#[derive(Debug)] pub struct Screening { /// x
 pub matches: Vec<Match>, /// x
 pub engines: Vec<usize>, /// x
 pub verdict: Verdict }
/// x
pub fn screen(_p: &GuardPlan, _d: &Document<'_>, _s: &Spanned<'_>, _g: GuardStage) -> Screening { Screening { matches: Vec::new(), engines: Vec::new(), verdict: Verdict::Pass } }
/// x
pub fn credential_edits(_d: &Document<'_>, _p: &Spanned<'_>) -> Vec<Edit> { Vec::new() }
/// x
pub fn clean_credentials(_t: &str) -> Option<String> { None }
