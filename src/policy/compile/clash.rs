//! Exposed names that tools of two servers would share (contract §6).

use std::collections::{HashMap, HashSet};

use super::ToolKey;
use crate::model::{
    name,
    records::{Owned, Server, ToolRecord},
};

/// Why the later of two tools is isolated.
pub(super) const CLASH: &str = "its exposed name clashes with a tool of another server that was recorded before";

/// Tools, by slug and name, whose exposed name another server's tool had before: the one recorded later, or of two recorded
/// together the one of the greater slug (contract §6).
pub(super) fn find(
    servers: &[&Owned<Server>],
    tools: &HashMap<ToolKey<'_>, Vec<&ToolRecord>>,
) -> HashSet<(String, String)> {
    let mut first: HashMap<String, &ToolRecord> = HashMap::new();
    let mut isolated = HashSet::new();
    for server in servers {
        let key = (server.value.organization.as_str(), server.value.slug.as_str());
        for tool in tools.get(&key).into_iter().flatten() {
            let exposed = name::exposed(&tool.server, &tool.name);
            let Some(held) = first.get(&exposed).copied().filter(|held| held.server != tool.server) else {
                first.insert(exposed, tool);
                continue;
            };
            let later = if (held.recorded, &held.server) > (tool.recorded, &tool.server) { held } else { tool };
            isolated.insert((later.server.clone(), later.name.clone()));
            if std::ptr::eq(later, held) {
                first.insert(exposed, tool);
            }
        }
    }
    isolated
}
