//! What a server's listing does to the tools that are known of it: from discovery, and from the question that registering asks.

use std::collections::HashMap;

use serde_json::json;

use super::{catalog::Catalog, change::Heard, error::ChangeError, next::Next};
use crate::{
    model::{
        name::exposed,
        records::{Approval, DiscoveryRecord, Server, ToolRecord},
        units::shown,
    },
    policy::approval::{self, Applied, ListedTool, Recording, ToolState},
    store::Write,
};

/// The most tools that a message about clashes names.
const CLASHES_NAMED_MAX: usize = 20;

/// Takes in what a server answered when a person registered or changed it.
///
/// # Errors
/// [`ChangeError::NameClash`]: a tool that was not known would get the exposed name of another server's tool.
pub(super) fn take_heard(
    next: &mut Next,
    catalog: &Catalog,
    server: &Server,
    heard: &Heard,
) -> Result<(), ChangeError> {
    check_clashes(next, server, &heard.tools)?;
    take(next, catalog, (&server.organization, &server.slug), heard.clone());
    Ok(())
}

/// Takes in a complete listing of a server.
pub(super) fn take(next: &mut Next, catalog: &Catalog, (organization, slug): (&str, &str), heard: Heard) {
    let pins: Vec<&Approval> = catalog
        .records
        .approvals
        .iter()
        .map(|owned| &owned.value)
        .filter(|pin| pin.server == slug && pin.organization == organization)
        .collect();
    let recorded = approval::next_recorded(&next.tools, organization);
    let recording = Recording { organization, server: slug, recorded };
    let (known, others): (Vec<ToolRecord>, Vec<ToolRecord>) = std::mem::take(&mut next.tools)
        .into_iter()
        .partition(|tool| tool.server == slug && tool.organization == organization);
    next.tools = others;
    let applied = approval::apply_listing(known, recording, heard.tools, &pins);
    note_moves(next, (organization, slug), &applied);
    next.writes.extend(applied.written.iter().cloned().map(Write::PutTool));
    next.tools.extend(applied.written);
    next.tools.extend(applied.unchanged);
    let record = DiscoveryRecord {
        organization: organization.to_owned(),
        server: slug.to_owned(),
        revision: Some(heard.revision),
    };
    if !next.discoveries.contains(&record) {
        next.discoveries.retain(|known| known.server != slug || known.organization != organization);
        next.discoveries.push(record.clone());
        next.writes.push(Write::PutDiscovery(record));
    }
}

/// What the listing moved, for the audit and, once it is committed, for the log.
fn note_moves(next: &mut Next, (organization, slug): (&str, &str), applied: &Applied) {
    if applied.moves.is_empty() {
        return;
    }
    let mut moves = Vec::with_capacity(applied.moves.len());
    for moved in &applied.moves {
        let (from, to) = (moved.from.map_or("new", ToolState::as_str), moved.to.as_str());
        next.moves.push((slug.to_owned(), moved.clone()));
        moves.push(json!({ "tool": moved.name, "from": from, "to": to }));
    }
    next.note("discovery", "tools.listed", (organization, slug), (None, Some(json!({ "moves": moves }))));
}

fn check_clashes(next: &Next, server: &Server, listed: &[ListedTool]) -> Result<(), ChangeError> {
    let Server { organization, slug, .. } = server;
    let in_home = || next.tools.iter().filter(|tool| tool.organization == *organization);
    let taken: HashMap<String, &ToolRecord> =
        in_home().filter(|tool| tool.server != *slug).map(|tool| (exposed(&tool.server, &tool.name), tool)).collect();
    let known: std::collections::HashSet<&str> =
        in_home().filter(|tool| tool.server == *slug).map(|tool| tool.name.as_str()).collect();
    let mut clashes: Vec<String> = listed
        .iter()
        .filter(|tool| !known.contains(tool.name.as_str()))
        .filter_map(|tool| {
            let name = exposed(slug, &tool.name);
            let other = taken.get(&name)?;
            let (ours, theirs) = (shown(&tool.name), shown(&other.name));
            Some(format!("`{name}` (`{slug}/{ours}` and `{}/{theirs}`)", other.server))
        })
        .collect();
    clashes.sort();
    clashes.dedup();
    if clashes.is_empty() {
        return Ok(());
    }
    let more = clashes.len().saturating_sub(CLASHES_NAMED_MAX);
    clashes.truncate(CLASHES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(ChangeError::NameClash(format!("{}{more}", clashes.join(", "))))
}
