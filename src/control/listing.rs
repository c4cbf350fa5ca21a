//! What a server's listing does to the tools that are known of it: from discovery, and from the question that registering asks.

use std::collections::HashMap;

use serde_json::json;

use super::{catalog::Catalog, change::Heard, error::ChangeError, next::Next};
use crate::{
    model::{
        mcp::Revision,
        name::exposed,
        records::{Approval, DiscoveryRecord, Owned, Server, ToolRecord},
        units::shown,
    },
    policy::approval::{self, Applied, FIRST_RECORDED, ListedTool, Move, Recording, ToolState},
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
    let name = (server.organization.as_str(), server.slug.as_str());
    let known = (next.tools.as_slice(), next.discoveries.as_slice());
    Taken::of(known, &catalog.records.approvals, &[(name, heard)]).put_into(next);
    Ok(())
}

/// A server by organization and slug.
type Name<'a> = (&'a str, &'a str);

/// What complete listings do to the tools of their servers. New tools of listings that came together are recorded together
/// (contract §6: of two that clash, the greater slug's is isolated then).
#[derive(Default)]
pub(super) struct Taken<'a> {
    /// Every tool of the servers of which something changed.
    tools: HashMap<Name<'a>, Vec<ToolRecord>>,
    /// What each listing changed.
    applied: Vec<(Name<'a>, Vec<ToolRecord>, Vec<Move>)>,
    discoveries: Vec<DiscoveryRecord>,
}

impl<'a> Taken<'a> {
    /// Judges listings, in the order in which they came, by what is known: tools, what was discovered, and the files' pins.
    pub(super) fn of(
        (tools, discoveries): (&[ToolRecord], &[DiscoveryRecord]),
        pins: &[Owned<Approval>],
        heard: &[(Name<'a>, &Heard)],
    ) -> Self {
        let asked: HashMap<Name<'_>, Name<'a>> = heard.iter().map(|(name, _)| (*name, *name)).collect();
        let numbers = approval::next_recorded(tools);
        let mut known: HashMap<Name<'a>, Vec<ToolRecord>> = HashMap::new();
        for tool in tools {
            if let Some(name) = asked.get(&(tool.organization.as_str(), tool.server.as_str())) {
                known.entry(*name).or_default().push(tool.clone());
            }
        }
        let mut pinned: HashMap<Name<'_>, Vec<&Approval>> = HashMap::new();
        for Owned { value: pin, .. } in pins {
            pinned.entry((&pin.organization, &pin.server)).or_default().push(pin);
        }
        let mut taken = Self::default();
        for (name, heard) in heard {
            let (organization, server) = *name;
            let recorded = numbers.get(organization).copied().unwrap_or(FIRST_RECORDED);
            let recording = Recording { organization, server, recorded };
            let pins = pinned.get(name).map_or(&[][..], Vec::as_slice);
            let Applied { written, unchanged, moves } =
                approval::apply_listing(known.remove(name).unwrap_or_default(), recording, heard.tools.clone(), pins);
            let all = [unchanged, written.clone()].concat();
            if !written.is_empty() {
                taken.tools.insert(*name, all.clone());
                taken.applied.push((*name, written, moves));
            }
            known.insert(*name, all);
            taken.settle(discoveries, *name, heard.revision);
        }
        taken
    }

    /// Notes the protocol that was settled, unless it is known.
    fn settle(&mut self, known: &[DiscoveryRecord], (organization, server): Name<'a>, revision: Revision) {
        let is_it = |record: &&DiscoveryRecord| record.server == server && record.organization == organization;
        let before = self.discoveries.iter().rev().find(is_it).or_else(|| known.iter().find(is_it));
        if before.is_none_or(|record| record.revision != Some(revision)) {
            let (organization, server) = (organization.to_owned(), server.to_owned());
            self.discoveries.push(DiscoveryRecord { organization, server, revision: Some(revision) });
        }
    }

    /// Whether they change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.discoveries.is_empty()
    }

    /// Does it to the state to be.
    pub(super) fn put_into(self, next: &mut Next) {
        next.tools.retain(|tool| !self.tools.contains_key(&(tool.organization.as_str(), tool.server.as_str())));
        next.tools.extend(self.tools.into_values().flatten());
        for (name, written, moves) in self.applied {
            note_moves(next, name, &moves);
            next.writes.extend(written.into_iter().map(Write::PutTool));
        }
        for record in self.discoveries {
            next.discoveries.retain(|known| known.server != record.server || known.organization != record.organization);
            next.discoveries.push(record.clone());
            next.writes.push(Write::PutDiscovery(record));
        }
    }
}

/// What the listing moved, for the audit and, once it is committed, for the log.
fn note_moves(next: &mut Next, (organization, slug): Name<'_>, moved: &[Move]) {
    if moved.is_empty() {
        return;
    }
    let mut moves = Vec::with_capacity(moved.len());
    for moved in moved {
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
