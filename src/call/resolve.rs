//! Stage `resolve`: which tool is meant, and may this key use it? (contract §4 rows 1 to 3)
//!
//! Knows nothing of arguments, rates or sockets. Runs on every call: no allocation, no lock.
//!
//! **Invariant.** The grant is asked before the approval, so a key without a grant learns nothing of a tool's state.

use std::sync::Arc;

use crate::{
    policy::{
        approval::ToolState,
        snapshot::{KeyPolicy, ServerPolicy, ToolPolicy, ViewServer},
    },
    refusal::Refusal,
};

/// The tool of that name on the aggregated endpoint.
///
/// # Refuses
/// - [`Refusal::UnknownTool`]: never seen in the organization.
/// - [`Refusal::ToolNotAllowed`], [`Refusal::ToolNotApproved`], [`Refusal::ToolDefinitionChanged`].
pub fn aggregated<'s>(key: &'s KeyPolicy, name: &str) -> Result<(&'s Arc<ServerPolicy>, &'s Arc<ToolPolicy>), Refusal> {
    let (server, tool) = key.organization.exposed.get(name).ok_or_else(|| Refusal::UnknownTool(name.to_owned()))?;
    permitted(key.view.servers.get(&server.slug), tool)?;
    Ok((server, tool))
}

/// The tool of that name on a server's own endpoint.
///
/// # Refuses
/// - [`Refusal::UnknownTool`]: never seen on the server.
/// - [`Refusal::ToolNotAllowed`], [`Refusal::ToolNotApproved`], [`Refusal::ToolDefinitionChanged`].
pub fn on_server<'s>(
    granted: &'s ViewServer,
    name: &str,
) -> Result<(&'s Arc<ServerPolicy>, &'s Arc<ToolPolicy>), Refusal> {
    let tool = granted.server.tools.get(name).ok_or_else(|| Refusal::UnknownTool(name.to_owned()))?;
    permitted(Some(granted), tool)?;
    Ok((&granted.server, tool))
}

/// Whether a grant covers the tool and its state lets it be called.
///
/// # Refuses
/// - [`Refusal::ToolNotAllowed`], then [`Refusal::ToolNotApproved`] or [`Refusal::ToolDefinitionChanged`].
fn permitted(granted: Option<&ViewServer>, tool: &ToolPolicy) -> Result<(), Refusal> {
    if !granted.is_some_and(|granted| granted.access.covers(tool)) {
        return Err(Refusal::ToolNotAllowed);
    }
    match tool.state {
        ToolState::Approved => Ok(()),
        ToolState::Changed => Err(Refusal::ToolDefinitionChanged),
        ToolState::Pending | ToolState::Blocked | ToolState::Removed => Err(Refusal::ToolNotApproved),
    }
}
