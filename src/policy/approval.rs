//! The life of a tool: from a listing, a pin and a person's word to one state (contract §6).
//!
//! Pure: knows no store, no clock and no schema. Why a definition is faulty is found elsewhere and told here.
//!
//! A tool has at most one pin at a time. A file's `[[approval]]` goes before a decision made through the API, save that a
//! block by hand always holds. [`ToolRecord::pin`] is the pin that `pin_seen` and `changed` speak of; [`adopt`] makes a new
//! one of a file known to the record.
//!
//! **Invariants.** A tool is `approved` only while its current definition is the pinned one. What was listed never lifts
//! `changed` once the pinned bytes were seen; only a person does. A name that was once recorded is never dropped.

mod clashes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use self::clashes::clashes;
use crate::model::{
    pin::Pin,
    records::{Approval, ApprovalStatus, Class, Decision, Definition, Label, ToolRecord},
};

/// What may be done with a tool, and why (contract §6). Also a metric label and `status` in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolState {
    /// Listed, but nobody has decided.
    Pending,
    /// Approved, and its definition is the approved one.
    Approved,
    /// Approved, but the server lists (or, once the pinned bytes were seen, ever listed) another definition.
    Changed,
    /// Known, but no longer (or not yet) listed.
    Removed,
    /// Not callable by hand, whatever the server lists.
    Blocked,
}

/// Why an approval is refused; the record is left as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApproveError {
    /// `mcp_tool_removed`
    #[error("the server no longer lists this tool")]
    Removed,
    /// 400 `invalid_request`
    #[error("this tool cannot be approved: {0}")]
    Fault(String),
    /// `mcp_tool_definition_stale`
    #[error("`expected_sha256` is not the hash of the current definition: review it again")]
    Stale,
    /// 409 `managed_by_file`
    #[error("a policy file decides on this tool: change its `[[approval]]` there")]
    ManagedByFile,
}

/// A tool as one listing has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// The server's own name for it.
    pub name: String,
    /// Its definition.
    pub definition: Definition,
    /// Why it can never be called, apart from its name being borne twice, which [`apply_listing`] finds.
    pub fault: Option<String>,
}

/// The number of the tools that are recorded first in their organization.
pub const FIRST_RECORDED: i64 = 1;

/// Whose tools are recorded, and the number that new ones get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording<'a> {
    /// Owner.
    pub organization: &'a str,
    /// Slug.
    pub server: &'a str,
    /// [`ToolRecord::recorded`] of every tool that this makes known; see [`next_recorded`]. Servers that are recorded
    /// together get the same number, so that a clash between them is settled by their slugs (contract §6).
    pub recorded: i64,
}

/// What came of a listing or of new pins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The records that are new or differ from before, by name: what must be stored.
    pub written: Vec<ToolRecord>,
    /// The others, by name.
    pub unchanged: Vec<ToolRecord>,
    /// The tools whose state is another one now, by name.
    pub moves: Vec<Move>,
}

/// A tool that went from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The server's own name for it.
    pub name: String,
    /// None: it was not known.
    pub from: Option<ToolState>,
    /// Its state now.
    pub to: ToolState,
}

impl ToolState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Changed, Self::Removed, Self::Blocked];

    /// As metrics and the API write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Blocked => "blocked",
        }
    }
}

/// The state of a tool, given the file's pin on it.
///
/// A block goes before everything, a missing listing before what was once seen.
#[must_use]
pub fn state(record: &ToolRecord, file_pin: Option<&Approval>) -> ToolState {
    if is_blocked(record, file_pin) {
        return ToolState::Blocked;
    }
    let Some(current) = &record.current else { return ToolState::Removed };
    match standing_pin(record, file_pin) {
        None => ToolState::Pending,
        Some((pin, changed)) if changed || current.sha256 != pin => ToolState::Changed,
        Some(_) => ToolState::Approved,
    }
}

/// Class and labels that were decided for the tool: the file's where there is one; none while nobody has decided.
#[must_use]
pub fn terms<'a>(record: &'a ToolRecord, file_pin: Option<&'a Approval>) -> Option<(Class, &'a [Label])> {
    match (file_pin, &record.decision) {
        (Some(file), _) => Some((file.class, &file.labels)),
        (None, Some(decision)) => Some((decision.class, &decision.labels)),
        (None, None) => None,
    }
}

/// Makes a file's pin known to the record. One that differs from [`ToolRecord::pin`] is a new approval: what was seen of
/// the old one counts no more, and an approval through the API gives way (a block does not). Says whether anything changed.
///
/// A pin that is taken out of its file stays in the record, so that a file that was missing for a moment lifts nothing.
pub fn adopt(record: &mut ToolRecord, file_pin: Option<&Approval>) -> bool {
    let Some(file) = file_pin else { return false };
    if record.pin == Some(file.sha256) {
        return false;
    }
    record.pin = Some(file.sha256);
    record.pin_seen = false;
    record.changed = false;
    record.approved = None;
    record.decision.take_if(|decision| decision.status == ApprovalStatus::Approved);
    compare(record);
    true
}

/// Takes in what a listing says of the tool; `current` is none where it was not listed. Says whether anything changed.
///
/// Of two definitions with one hash (they differ in `_meta` or in spelling) the first stays.
pub fn observe(
    record: &mut ToolRecord,
    current: Option<Definition>,
    fault: Option<String>,
    file_pin: Option<&Approval>,
) -> bool {
    let mut touched = adopt(record, file_pin);
    if record.current.as_ref().map(|d| d.sha256) != current.as_ref().map(|d| d.sha256) {
        record.current = current;
        touched = true;
    }
    if record.fault != fault {
        record.fault = fault;
        touched = true;
    }
    compare(record) || touched
}

/// Approves the current definition, if it is the one that was reviewed. For tools without a file's pin.
///
/// # Errors
/// [`ApproveError::Removed`], [`ApproveError::Fault`], then [`ApproveError::Stale`].
pub fn approve(record: &mut ToolRecord, expected: Pin, class: Class, labels: Vec<Label>) -> Result<(), ApproveError> {
    let current = approvable(record)?;
    if current.sha256 != expected {
        return Err(ApproveError::Stale);
    }
    record.approved = Some(current.clone());
    record.pin = Some(expected);
    record.pin_seen = true;
    record.changed = false;
    record.decision = Some(Decision { status: ApprovalStatus::Approved, class, labels });
    Ok(())
}

/// Says again what a file's pin says: lifts `changed`, and a block by hand, but goes nowhere beyond the file.
///
/// # Errors
/// [`ApproveError::Removed`], [`ApproveError::Fault`], then [`ApproveError::ManagedByFile`] where the file says something
/// else than `expected`, then [`ApproveError::Stale`].
pub fn reaffirm(record: &mut ToolRecord, file_pin: &Approval, expected: Pin) -> Result<(), ApproveError> {
    let current = approvable(record)?.sha256;
    if file_pin.status != ApprovalStatus::Approved || file_pin.sha256 != expected {
        return Err(ApproveError::ManagedByFile);
    }
    if current != expected {
        return Err(ApproveError::Stale);
    }
    adopt(record, Some(file_pin));
    record.changed = false;
    record.decision.take_if(|decision| decision.status == ApprovalStatus::Blocked);
    compare(record);
    Ok(())
}

/// Blocks the tool by hand, also on top of a file's pin. Class and labels of an earlier decision stay. Says whether
/// anything changed.
pub fn block(record: &mut ToolRecord) -> bool {
    let before = record.decision.as_ref().map(|decision| decision.status);
    let decision = record.decision.get_or_insert(Decision {
        status: ApprovalStatus::Blocked,
        class: Class::Write,
        labels: Vec::new(),
    });
    decision.status = ApprovalStatus::Blocked;
    before != Some(ApprovalStatus::Blocked)
}

/// Takes in a complete listing of one server. `known` is every record of it, `pins` every file's pin on its tools.
///
/// New names, listed or pinned, are recorded; known names that are not listed stay and become `removed`. A name, or an
/// exposed name, that more than one listed tool bears is a fault of them all.
#[must_use]
pub fn apply_listing(
    known: Vec<ToolRecord>,
    recording: Recording<'_>,
    listed: Vec<ListedTool>,
    pins: &[&Approval],
) -> Applied {
    let mut faults = clashes(recording.server, &listed);
    let mut by_name: BTreeMap<String, Vec<ListedTool>> = BTreeMap::new();
    for tool in listed {
        by_name.entry(tool.name.clone()).or_default().push(tool);
    }
    let names = by_name.keys().cloned().collect();
    apply(known, recording, pins, names, |record, file_pin| {
        adopt(record, file_pin);
        let mut bearers = by_name.remove(&record.name).unwrap_or_default();
        // Of several bearers one that is not pinned counts, so that a mismatch cannot hide behind the pinned bytes.
        let odd_one = bearers.iter().position(|tool| Some(tool.definition.sha256) != record.pin).unwrap_or(0);
        let mut reasons: Vec<String> = bearers.iter_mut().filter_map(|tool| tool.fault.take()).collect();
        reasons.dedup();
        reasons.extend(faults.remove(&record.name));
        let fault = (!reasons.is_empty()).then(|| reasons.join("; "));
        let current = (odd_one < bearers.len()).then(|| bearers.swap_remove(odd_one).definition);
        observe(record, current, fault, file_pin);
    })
}

/// Takes in the files' pins on one server's tools without a listing: after a reload, and for a server that never answered.
#[must_use]
pub fn apply_pins(known: Vec<ToolRecord>, recording: Recording<'_>, pins: &[&Approval]) -> Applied {
    apply(known, recording, pins, BTreeSet::new(), |record, file_pin| {
        adopt(record, file_pin);
    })
}

/// The number after every one that was given to a tool, by organization; for one without tools it is [`FIRST_RECORDED`].
#[must_use]
pub fn next_recorded<'a>(tools: impl IntoIterator<Item = &'a ToolRecord>) -> HashMap<&'a str, i64> {
    tools.into_iter().fold(HashMap::new(), |mut numbers, tool| {
        let number = numbers.entry(tool.organization.as_str()).or_insert(FIRST_RECORDED);
        *number = tool.recorded.saturating_add(1).max(*number);
        numbers
    })
}

/// Runs `change` over every record of a server, those of new names included, and tells the touched from the others.
fn apply(
    known: Vec<ToolRecord>,
    recording: Recording<'_>,
    pins: &[&Approval],
    mut names: BTreeSet<String>,
    mut change: impl FnMut(&mut ToolRecord, Option<&Approval>),
) -> Applied {
    let is_ours = |pin: &&&Approval| pin.organization == recording.organization && pin.server == recording.server;
    let pins: BTreeMap<&str, &Approval> = pins.iter().filter(is_ours).map(|pin| (pin.tool.as_str(), *pin)).collect();
    let mut known: BTreeMap<String, ToolRecord> = known.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
    names.extend(known.keys().cloned());
    names.extend(pins.keys().map(|name| (*name).to_owned()));
    let mut applied = Applied::default();
    for name in names {
        let file_pin = pins.get(name.as_str()).copied();
        let before = known.remove(&name);
        // Its state before, under the pin that was known to it: a pin that was edited since is part of the change.
        let from = before.as_ref().map(|record| state_before(record, file_pin));
        let mut record = before.clone().unwrap_or_else(|| unseen(recording, &name));
        change(&mut record, file_pin);
        let to = state(&record, file_pin);
        if from != Some(to) {
            applied.moves.push(Move { name, from, to });
        }
        if before.as_ref() == Some(&record) {
            applied.unchanged.push(record);
        } else {
            applied.written.push(record);
        }
    }
    applied
}

/// The state of a record before this change.
fn state_before(record: &ToolRecord, file_pin: Option<&Approval>) -> ToolState {
    let known_pin = file_pin.filter(|file| record.pin == Some(file.sha256));
    state(record, known_pin)
}

/// The record of a name that nothing else is known of.
fn unseen(recording: Recording<'_>, name: &str) -> ToolRecord {
    ToolRecord {
        organization: recording.organization.to_owned(),
        server: recording.server.to_owned(),
        name: name.to_owned(),
        recorded: recording.recorded,
        current: None,
        fault: None,
        pin: None,
        pin_seen: false,
        changed: false,
        approved: None,
        decision: None,
    }
}

/// Compares the current definition with the record's pin, and keeps what that shows. Says whether anything changed.
fn compare(record: &mut ToolRecord) -> bool {
    let (Some(current), Some(pin)) = (&record.current, record.pin) else { return false };
    if current.sha256 == pin {
        let kept = record.approved.as_ref().is_some_and(|approved| approved.sha256 == pin);
        if !kept {
            record.approved = Some(current.clone());
        }
        return !std::mem::replace(&mut record.pin_seen, true) || !kept;
    }
    record.pin_seen && !std::mem::replace(&mut record.changed, true)
}

/// The definition that an approval would be of.
fn approvable(record: &ToolRecord) -> Result<&Definition, ApproveError> {
    let current = record.current.as_ref().ok_or(ApproveError::Removed)?;
    record.fault.as_ref().map_or(Ok(current), |fault| Err(ApproveError::Fault(fault.clone())))
}

fn is_blocked(record: &ToolRecord, file_pin: Option<&Approval>) -> bool {
    let by_file = file_pin.is_some_and(|file| file.status == ApprovalStatus::Blocked);
    by_file || record.decision.as_ref().is_some_and(|decision| decision.status == ApprovalStatus::Blocked)
}

/// The pin that holds, and whether a mismatch sticks to it.
fn standing_pin(record: &ToolRecord, file_pin: Option<&Approval>) -> Option<(Pin, bool)> {
    match file_pin {
        Some(file) if record.pin == Some(file.sha256) => Some((file.sha256, record.changed)),
        Some(file) => Some((file.sha256, false)),
        None => {
            let approved = record.decision.as_ref().is_some_and(|d| d.status == ApprovalStatus::Approved);
            record.pin.filter(|_| approved).map(|pin| (pin, record.changed))
        }
    }
}

#[cfg(test)]
mod tests;
