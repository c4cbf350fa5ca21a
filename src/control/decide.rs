//! What a person's decision does to a tool: approve, block, set class and labels (contract §6, §9).

use super::{
    catalog::{Catalog, missing},
    change::{Asker, Change, ToolName},
    error::ChangeError,
    next::{Next, decision_json},
};
use crate::{
    model::{
        records::{Approval, ApprovalStatus, Class, Decision, Label, ToolRecord},
        units::shown,
    },
    policy::approval::{self, ApproveError, ToolState},
    store::Write,
};

/// Does a decision to the state to be.
///
/// # Errors
/// [`ChangeError`]
pub(super) fn plan(next: &mut Next, catalog: &Catalog, change: &Change, asker: &Asker) -> Result<(), ChangeError> {
    match change {
        Change::Approve { tool, expected, class, labels } => {
            decide(next, catalog, tool, (asker, "tool.approve"), |record, pin| {
                match pin {
                    Some(pin) => approval::reaffirm(record, pin, *expected),
                    None => approval::approve(record, *expected, *class, labels.clone()),
                }
                .map_err(|error| refused(error, tool))
            })
        }
        Change::Block(tool) => decide(next, catalog, tool, (asker, "tool.block"), |record, _| {
            approval::block(record);
            Ok(())
        }),
        Change::SetTerms { tool, class, labels } => {
            decide(next, catalog, tool, (asker, "tool.change"), |record, pin| {
                set_terms(record, pin, (*class, labels.as_deref()), tool)
            })
        }
        _ => Ok(()),
    }
}

fn decide(
    next: &mut Next,
    catalog: &Catalog,
    name: &ToolName,
    (asker, what): (&Asker, &str),
    change: impl FnOnce(&mut ToolRecord, Option<&Approval>) -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    let (server, known) = catalog.tool(name)?;
    let pin = catalog.pin(known).map(|owned| &owned.value);
    let same = |tool: &&mut ToolRecord| {
        tool.name == known.name && tool.server == known.server && tool.organization == known.organization
    };
    let record = next.tools.iter_mut().find(same).ok_or_else(|| missing("tool", &name.tool))?;
    let before = decision_json(record, pin);
    change(record, pin)?;
    if *record == *known {
        return Ok(());
    }
    let (record, mut after) = (record.clone(), decision_json(record, pin));
    if let (Some(note), Some(members)) = (&asker.note, after.as_object_mut()) {
        members.insert("note".to_owned(), note.as_str().into());
    }
    let target = format!("{}/{}", server.value.slug, record.name);
    next.note(&asker.who, what, (&server.value.organization, &target), (Some(before), Some(after)));
    next.writes.push(Write::PutTool(record));
    Ok(())
}

fn set_terms(
    record: &mut ToolRecord,
    pin: Option<&Approval>,
    (class, labels): (Option<Class>, Option<&[Label]>),
    name: &ToolName,
) -> Result<(), ChangeError> {
    let state = approval::state(record, pin);
    if state != ToolState::Approved {
        return Err(ChangeError::NotApproved(state.as_str()));
    }
    if pin.is_some() {
        return Err(ChangeError::ManagedByFile(title(name)));
    }
    let decision = record.decision.get_or_insert(Decision {
        status: ApprovalStatus::Approved,
        class: Class::Write,
        labels: Vec::new(),
    });
    decision.class = class.unwrap_or(decision.class);
    if let Some(labels) = labels {
        decision.labels = labels.to_vec();
    }
    Ok(())
}

fn refused(error: ApproveError, name: &ToolName) -> ChangeError {
    match error {
        ApproveError::Removed => ChangeError::Removed,
        ApproveError::Stale => ChangeError::Stale,
        ApproveError::Fault(why) => ChangeError::Invalid(format!("{} cannot be approved: {why}", title(name))),
        ApproveError::ManagedByFile => ChangeError::ManagedByFile(title(name)),
    }
}

fn title(name: &ToolName) -> String {
    format!("tool `{}/{}`", shown(&name.server), shown(&name.tool))
}
